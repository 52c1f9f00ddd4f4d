"""Files for agents over artifacts (A8): what deepagents-style tools call, on a running suite."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from tests.support.suite import Suite
from threadkeep import Client
from threadkeep._globs import matcher
from threadkeep.files import ArtifactFiles

pytestmark = pytest.mark.suite(backends=["sqlite"], topologies=["embedded"])


@pytest.fixture
def client(shared_suite: Suite) -> Iterator[Client]:
    """A client in a scope of its own."""
    with Client(shared_suite.addresses, scope={"test": uuid.uuid4().hex}) as made:
        yield made


@pytest.fixture
def files(client: Client) -> ArtifactFiles:
    """The files of a session."""
    return ArtifactFiles(client, session_id="s", run_id="r1", task_id="t")


@pytest.mark.rule("A8")
async def test_files_are_written_read_listed_edited_and_deleted(files: ArtifactFiles, client: Client) -> None:
    await asyncio.to_thread(_lives, files, client)


def _lives(files: ArtifactFiles, client: Client) -> None:
    assert files.write("/notes/plan.md", "one\ntwo\nthree\n").path == "/notes/plan.md"
    assert files.write("/notes/deep/x.txt", "x").error is None
    assert files.write("/readme", "").error is None
    (version,) = [*client.artifacts.list(path_prefix="/notes/plan")]
    metadata = version.metadata
    assert (metadata.session_id, metadata.run_id, metadata.task_id) == ("s", "r1", "t")
    assert (metadata.name, metadata.media_type) == ("plan.md", "text/markdown")
    entries = files.ls("/").entries
    assert entries is not None
    assert [(one["path"], one["is_dir"]) for one in entries] == [("/notes/", True), ("/readme", False)]
    assert [one["path"] for one in files.ls("/notes").entries or ()] == ["/notes/deep/", "/notes/plan.md"]
    read = files.read("/notes/plan.md", offset=1, limit=1)
    assert read.file_data is not None
    assert (read.file_data["content"], read.start_line, read.end_line) == ("two\n", 2, 2)
    assert (read.next_offset, read.total_lines) == (2, 3)
    assert files.read("/notes/plan.md", limit=0).no_lines_requested
    assert files.read("/notes/plan.md", offset=9).error is not None
    assert files.read("/readme").file_data == {
        "content": "",
        "encoding": "utf-8",
        "modified_at": (files.read("/readme").file_data or {})["modified_at"],
    }
    # Equal content makes no version, other content one.
    files.write("/notes/plan.md", "one\ntwo\nthree\n")
    assert client.artifacts.get(version.artifact_id).version == 1
    assert files.edit("/notes/plan.md", "two", "2").occurrences == 1
    assert client.artifacts.read(version.artifact_id) == b"one\n2\nthree\n"
    assert client.artifacts.get(version.artifact_id).version == 2
    assert "appears 3 times" in (files.edit("/notes/plan.md", "e", "E").error or "")
    assert files.edit("/notes/plan.md", "e", "E", replace_all=True).occurrences == 3
    for wrong in (files.edit("/notes/plan.md", "none", ""), files.edit("/notes/plan.md", "", "x")):
        assert "not found in file" in (wrong.error or "")
    assert "not found" in (files.edit("/none", "a", "b").error or "")
    assert files.delete("/notes").path == "/notes"
    assert files.delete("/notes").error is not None
    assert [one["path"] for one in files.ls("/").entries or ()] == ["/readme"]
    assert client.artifacts.restore(version.artifact_id).latest.version == 3


@pytest.mark.rule("A8")
@pytest.mark.case("B12")
async def test_files_are_found_by_name_and_by_content(files: ArtifactFiles) -> None:
    await asyncio.to_thread(_found, files)


def _found(files: ArtifactFiles) -> None:
    texts = {"/a.py": "import os\n", "/src/b.py": "import re\nx = 1\n", "/src/in/c.txt": "import\n", "/s%c/d_1": "x%"}
    for path, text in texts.items():
        files.write(path, text)
    files.upload_files([("/src/raw.bin", b"\xff\x00import")])

    def globbed(pattern: str, path: str | None = None) -> list[str]:
        return [one["path"] for one in files.glob(pattern, path).matches or ()]

    assert globbed("*.py") == ["/a.py", "/src/b.py"]
    assert globbed("/*.py") == ["/a.py"]
    assert globbed("src/**/*") == ["/src/b.py", "/src/in/c.txt", "/src/raw.bin"]
    assert globbed("**/c.txt", "/src") == ["/src/in/c.txt"]
    assert globbed("*_1") == ["/s%c/d_1"]
    assert globbed("*", "/s_c") == []
    assert files.glob("[z-a]").error is not None

    def grepped(pattern: str, path: str | None = None, glob: str | None = None) -> list[tuple[str, int]]:
        return [(one["path"], one["line"]) for one in files.grep(pattern, path, glob).matches or ()]

    assert grepped("import") == [("/a.py", 1), ("/src/b.py", 1), ("/src/in/c.txt", 1)]
    assert grepped("import", "/src", "*.py") == [("/src/b.py", 1)]
    assert grepped("x = 1", "/src/b.py") == [("/src/b.py", 2)]
    assert grepped("x.=") == []
    assert grepped("%") == [("/s%c/d_1", 1)]
    cut = files.grep("import", max_count=1)
    assert (len(cut.matches or ()), cut.truncated) == (1, True)
    (raw, none) = files.download_files(["/src/raw.bin", "/none"])
    assert (raw.content, none.error) == (b"\xff\x00import", "file_not_found")
    binary = files.read("/src/raw.bin").file_data
    assert binary is not None
    assert binary["encoding"] == "base64"


@pytest.mark.rule("A8")
async def test_no_path_reaches_beyond_its_session(files: ArtifactFiles, client: Client) -> None:
    def tries() -> None:
        files.write("/secret", "mine")
        other = ArtifactFiles(client, session_id="other")
        for path in ("/secret", "/../s/secret", "../secret", "/a/../secret", "", "/", "/x\x00", "/" + "y" * 2000):
            assert other.read(path).error is not None
            assert other.download_files([path])[0].error == "file_not_found"
            assert other.edit(path, "mine", "theirs").error is not None
            assert other.delete(path).error is not None
        for path in ("/../s/secret", "../secret", "", "/", "/a//b", "/x\x00", "/" + "y" * 2000):
            assert "Invalid path" in (other.write(path, "x").error or "")
            assert other.upload_files([(path, b"x")])[0].error == "invalid_path"
        assert other.ls("/").entries == []

    await asyncio.to_thread(tries)


@pytest.mark.rule("A8")
async def test_the_files_of_one_run_leave_out_what_others_wrote(files: ArtifactFiles, client: Client) -> None:
    def tries() -> None:
        second = ArtifactFiles(client, session_id="s", run_id="r2", only_run=True)
        files.write("/shared", "first")
        assert second.read("/shared").error is not None
        # A path is of one artifact in the session: this is its next version, by this run.
        second.write("/shared", "first")
        assert second.read("/shared").file_data is not None
        assert [one.version for one in client.artifacts.list(path_prefix="/shared")] == [2]

    await asyncio.to_thread(tries)


@pytest.mark.rule("A8", "X4")
async def test_writers_of_one_file_lose_nothing(client: Client) -> None:
    def edits(number: int) -> None:
        mine = ArtifactFiles(client, session_id="s")
        answer = mine.edit("/log", "end", f"{number}\nend")
        assert answer.error is None

    first = ArtifactFiles(client, session_id="s")
    await asyncio.gather(*(asyncio.to_thread(first.write, "/log", "end") for _ in range(4)))
    await asyncio.gather(*(asyncio.to_thread(edits, number) for number in range(5)))
    (file,) = await asyncio.to_thread(lambda: [*client.artifacts.list(path_prefix="/")])
    text = (await asyncio.to_thread(client.artifacts.read, file.artifact_id)).decode()
    assert sorted(text.split()) == ["0", "1", "2", "3", "4", "end"]


@pytest.mark.rule("A8")
@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "deep/a.py", True),
        ("/*.py", "deep/a.py", False),
        ("**", "a/b", True),
        ("a/*", "a/b/c", False),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/x/y/c", True),
        ("?.t", "é.t", True),
        ("[ab].t", "c.t", False),
        ("[!ab].t", "c.t", True),
        ("[^a", "[^a", True),
        ("a.b", "axb", False),
        ("***", "x", True),
    ],
)
def test_a_pattern_matches_paths(pattern: str, path: str, matches: bool) -> None:
    assert matcher(pattern)(path) is matches
