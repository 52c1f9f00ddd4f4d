"""The committed stubs are what the protos generate, and the check can fail."""

from pathlib import Path

import pytest

from tools import gen


@pytest.mark.rule("X12")
def test_the_committed_stubs_are_what_the_protos_generate(tmp_path: Path) -> None:
    assert gen.drift(tmp_path) == []


@pytest.mark.rule("X12")
def test_a_changed_proto_gives_other_stubs(tmp_path: Path) -> None:
    """Without this, a drift check that compares nothing would pass for ever."""
    protos, out = tmp_path / "protos", tmp_path / "out"
    folder = protos / "threadkeep" / "common" / "v1"
    folder.mkdir(parents=True)
    out.mkdir()
    for name in ("options.proto", "payload.proto"):
        text = (gen.PROTOS / "threadkeep" / "common" / "v1" / name).read_text()
        folder.joinpath(name).write_text(text.replace("bytes data = 2;", "bytes content = 2;"))
    gen.generate(out, protos)
    stub = Path("clients/python/threadkeep/common/v1/payload_pb2.py")
    assert (out / stub).read_bytes() != (gen.ROOT / stub).read_bytes()
