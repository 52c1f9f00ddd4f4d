"""Every artifact call of the Python client once, for the test that makes every call of it."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from threadkeep import errors


async def use_artifacts(call: Any, tmp_path: Path) -> None:
    """Every call of `client.artifacts`; `call("artifacts.get", ...)` makes one."""
    content = bytes(range(256)) * 6000
    made = await call("artifacts.upload", content, "c.bin", labels={"k": "v"}, media_type="application/x-test")
    assert (made.version, made.sha256) == (1, hashlib.sha256(content).hexdigest())
    again = await call("artifacts.upload", b"second", "c.bin", artifact_id=made.artifact_id, expected_version=1)
    assert again.version == 2
    with pytest.raises(errors.IdTaken):
        await call("artifacts.upload", b"x", "c.bin", artifact_id=made.artifact_id, create_only=True)
    assert await call("artifacts.read", made.artifact_id) == b"second"
    assert b"".join(await call("artifacts.download", made.artifact_id, 1)) == content
    written = await call("artifacts.download_to", tmp_path / "c.bin", made.artifact_id, 1)
    assert (written.version, (tmp_path / "c.bin").read_bytes()) == (1, content)
    assert (await call("artifacts.get", made.artifact_id, 1)).metadata.labels == {"k": "v"}
    assert [one.version for one in await call("artifacts.list", name="c.bin")] == [2]
    assert [one.version for one in await call("artifacts.list_versions", made.artifact_id, page_size=1)] == [2, 1]
    mine = made.artifact_id
    assert (await call("artifacts.diff", mine, 2)).diff == ""
    small = await call("artifacts.create", "text", "c.txt", artifact_id=mine, path="/c", produced_from=[made, again])
    assert [one.version for one in small.metadata.produced_from] == [1, 2]
    copied = await call("artifacts.copy", again.sha256, "c.txt", artifact_id=mine, visibility="run", session_id="s")
    assert copied.version == 4
    with pytest.raises(errors.ArtifactNotFound):
        await call("artifacts.update", mine, labels={"a": "b"})
    reader = type(call)(call.client.as_reader(session_id="s"))
    changed = await reader("artifacts.update", mine, expected_version=4, labels={"a": "b"}, visibility="public")
    call.called.add("artifacts.update")
    assert (changed.version, changed.metadata.session_id) == (5, "s")
    assert (await call("artifacts.delete_version", mine, 5)).latest.version == 0
    assert (await call("artifacts.restore", mine, 5)).latest.version == 5
    assert (await call("artifacts.usage")).version_count == 5
    assert not (await call("artifacts.sign_download", mine)).parts
    with pytest.raises(errors.UploadNotFound):
        await call("artifacts.resume", "never begun")
    named = await call("artifacts.upload", content, "d.bin", upload_id="by name")
    assert (await call("artifacts.delete", named.artifact_id)).version_count == 1
    assert (await call("artifacts.delete", made.artifact_id)).version_count == 5
    with pytest.raises(errors.ArtifactNotFound):
        await call("artifacts.read", made.artifact_id)
