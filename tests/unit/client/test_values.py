"""Plain values as the contract's messages, and content that moves in pieces."""

import datetime
import hashlib
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.far_end import FarEnd, Refusal
from threadkeep import AsyncClient, Client, errors
from threadkeep._api.values import from_payload, to_answer, to_input, to_payload, to_timestamp
from threadkeep.artifacts.v1 import artifact_pb2, transfer_pb2
from threadkeep.common.v1 import content_pb2


def test_text_is_one_message_of_the_user() -> None:
    (message,) = to_input("hällo").messages.messages
    assert (message.role, message.parts[0].text) == (content_pb2.MESSAGE_ROLE_USER, "hällo")
    assert not message.HasField("message_id")


def test_a_conversation_keeps_roles_ids_and_blocks() -> None:
    block = {"type": "image", "url": "https://example.org/a.png"}
    given = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, block], "id": "m-1", "name": "Ada"},
    ]
    system, user = to_input(given).messages.messages
    assert system.role == content_pb2.MESSAGE_ROLE_SYSTEM
    assert (user.message_id, user.name) == ("m-1", "Ada")
    assert [part.WhichOneof("part") for part in user.parts] == ["text", "block_json"]


@pytest.mark.rule("X8")
@pytest.mark.parametrize("value", [{"n": 2**60 + 1, "f": 1.0, "t": "a\x00b"}, [1, 2], None, 3, True, [], {}])
def test_any_json_value_is_a_payload_and_comes_back(value: Any) -> None:
    given = to_input(value)
    assert given.WhichOneof("input") == "payload"
    assert from_payload(given.payload) == value
    assert from_payload(to_payload(b"\x00\xff")) == b"\x00\xff"


@pytest.mark.rule("X8")
@pytest.mark.case("B02", "B04")
@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": -math.inf}, "\ud83d", {"\udead": 1}])
def test_what_is_no_json_is_refused_before_it_is_sent(value: Any) -> None:
    with pytest.raises(ValueError):
        to_payload(value)


@pytest.mark.rule("R10")
@pytest.mark.case("B71")
def test_null_is_an_answer_and_no_value_is_not() -> None:
    assert to_answer(None).value_json == "null"
    assert not to_answer(decision="approve").HasField("value_json")


@pytest.mark.rule("X10")
@pytest.mark.case("B10")
def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        to_timestamp(datetime.datetime(2026, 1, 1))
    east = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    assert to_timestamp(datetime.datetime(2026, 1, 1, 5, 30, tzinfo=east)).ToJsonString() == "2026-01-01T00:00:00Z"


CONTENT = bytes(range(256)) * 8192


def _serve_download(far_end: FarEnd, breaks: list[Refusal], sha256: str) -> None:
    def frames(requests: list[Any]) -> Iterator[Any]:
        version = artifact_pb2.ArtifactVersion(artifact_id="a", version=3, size=len(CONTENT), sha256=sha256)
        yield transfer_pb2.DownloadVersionResponse(version=version)
        rest = CONTENT[requests[0].offset :]
        for start in range(0, len(rest), 300_000):
            yield transfer_pb2.DownloadVersionResponse(chunk=rest[start : start + 300_000])
            if breaks and start:
                raise breaks.pop(0)

    far_end.answer("DownloadVersion", transfer_pb2.DownloadVersionRequest, frames)


@pytest.mark.rule("A3")
async def test_a_download_goes_on_where_it_broke_and_is_verified(
    far_end: FarEnd, client: Client, async_client: AsyncClient, tmp_path: Path
) -> None:
    good = hashlib.sha256(CONTENT).hexdigest()
    _serve_download(far_end, [Refusal("UNAVAILABLE"), Refusal("UNAVAILABLE", "SHUTTING_DOWN")], good)
    assert client.artifacts.read("a") == CONTENT
    asked = [(one.version, one.offset) for one in far_end.requests("DownloadVersion")]
    # "The latest" is the version that the first answer named, also after a break.
    assert asked == [(0, 0), (3, 600_000), (3, 1_200_000)]
    _serve_download(far_end, [Refusal("UNAVAILABLE")], good)
    assert (await async_client.artifacts.download_to(tmp_path / "got", "a")).version == 3
    assert (tmp_path / "got").read_bytes() == CONTENT


@pytest.mark.rule("A3")
def test_content_with_another_digest_is_refused_and_leaves_no_file(
    far_end: FarEnd, client: Client, tmp_path: Path
) -> None:
    _serve_download(far_end, [], hashlib.sha256(b"other").hexdigest())
    with pytest.raises(errors.CorruptContent):
        client.artifacts.download_to(tmp_path / "got", "a")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.rule("A3", "X3")
async def test_an_upload_is_sent_whole_and_again_when_it_broke(
    far_end: FarEnd, client: Client, async_client: AsyncClient, tmp_path: Path
) -> None:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    refusals: list[Refusal] = []

    def take(requests: list[Any]) -> Any:
        if refusals:
            raise refusals.pop()
        chunks = b"".join(one.chunk for one in requests)
        trailer = requests[-1].trailer
        assert (trailer.size, trailer.sha256) == (len(chunks), hashlib.sha256(chunks).hexdigest())
        version = artifact_pb2.ArtifactVersion(artifact_id="a", version=1, size=len(chunks), sha256=trailer.sha256)
        return transfer_pb2.UploadVersionResponse(version=version)

    far_end.answer("UploadVersion", transfer_pb2.UploadVersionRequest, take)
    for content in (CONTENT, path, io.BytesIO(CONTENT)):
        refusals[:] = [Refusal("UNAVAILABLE", "COMMIT_UNKNOWN")]
        far_end.calls.clear()
        assert client.artifacts.upload(content, "c.bin", labels={"k": "v"}).size == len(CONTENT)
        first, second = far_end.requests("UploadVersion")
        assert first.header == second.header
        assert first.header.request_id
        if isinstance(content, io.BytesIO):
            content.seek(0)  # an open file is uploaded from where it stands
        refusals[:] = [Refusal("UNAVAILABLE")]
        assert (await async_client.artifacts.upload(content, "c.bin")).size == len(CONTENT)
    assert client.artifacts.upload(iter([b"ab", b"", b"c"]), "c.bin").size == 3
    assert client.artifacts.upload(b"", "empty").size == 0
    refusals[:] = [Refusal("UNAVAILABLE")]
    with pytest.raises(errors.Unavailable):
        client.artifacts.upload(iter([b"abc"]), "can not be read twice")


def test_an_upload_whose_source_fails_says_what_the_source_said(far_end: FarEnd, client: Client) -> None:
    def broken() -> Iterator[bytes]:
        yield b"abc"
        raise OSError("the disk is gone")

    far_end.answer(
        "UploadVersion",
        transfer_pb2.UploadVersionRequest,
        lambda _: transfer_pb2.UploadVersionResponse(),
    )
    with pytest.raises(OSError, match="the disk is gone"):
        client.artifacts.upload(broken(), "c.bin")
