"""The gate that guards the contract: lint with comments, and nothing that breaks the last released one."""

import re
import shutil
from pathlib import Path

import pytest

from tools import contract_gate


def _copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(contract_gate.PROTOS, tmp_path / "protos", ignore=shutil.ignore_patterns("released")))


def _edit(protos: Path, file: str, pattern: str, replacement: str) -> None:
    path = protos / "threadkeep" / file
    changed, count = re.subn(pattern, replacement, path.read_text(), count=1)
    assert count == 1, f"{pattern} is not in {file}"
    path.write_text(changed)


@pytest.mark.rule("X12")
def test_the_contract_passes_lint() -> None:
    assert contract_gate.lint() == []


@pytest.mark.rule("X12")
def test_a_field_without_a_comment_fails_lint(tmp_path: Path) -> None:
    protos = _copy(tmp_path)
    _edit(protos, "common/v1/payload.proto", r"  // The content\. May be empty\.\n", "")
    assert any("data" in line for line in contract_gate.lint(protos))


@pytest.mark.rule("X12")
def test_nothing_breaks_the_last_released_contract() -> None:
    assert contract_gate.breaking() == []


@pytest.mark.rule("X12")
def test_before_the_first_release_nothing_is_broken(tmp_path: Path) -> None:
    assert contract_gate.last_release(tmp_path) is None
    assert contract_gate.breaking(released=tmp_path) == []


@pytest.mark.rule("X12")
def test_the_newest_release_is_the_one_that_counts(tmp_path: Path) -> None:
    for name in ("v1.binpb", "v1.2.binpb", "v1.10.binpb"):
        (tmp_path / name).touch()
    assert contract_gate.last_release(tmp_path) == tmp_path / "v1.10.binpb"


@pytest.mark.rule("X12")
@pytest.mark.parametrize(
    ("change", "pattern", "replacement"),
    [
        ("a removed field", r"  // The content\. May be empty\.\n  bytes data = 2;\n", ""),
        ("a renamed field", r"bytes data = 2;", "bytes content = 2;"),
        ("a renumbered field", r"bytes data = 2;", "bytes data = 12;"),
        ("a retyped field", r"bytes data = 2;", "string data = 2;"),
    ],
)
def test_the_gate_refuses(tmp_path: Path, change: str, pattern: str, replacement: str) -> None:
    released = tmp_path / "released"
    released.mkdir()
    assert contract_gate.image(released / "v1.binpb") == []
    protos = _copy(tmp_path)
    assert contract_gate.breaking(protos, released) == []
    _edit(protos, "common/v1/payload.proto", pattern, replacement)
    assert contract_gate.breaking(protos, released) != [], change
