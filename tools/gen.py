"""Generates the Python stubs from protos/ into the Python client, or into another folder for the drift check.

Messages and services come from the protoc that grpc_tools brings, the type stubs from mypy-protobuf; both are pinned in
constraints.txt, so that the same protos give the same bytes everywhere.
"""

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc_tools

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
STUBS = ROOT / "clients" / "python"
PACKAGE_DOC = '"""Generated from protos/{package}; `make gen` writes it, nobody edits it."""\n'
PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi", "__init__.py")


def proto_files(protos: Path = PROTOS) -> list[Path]:
    """Every file of the contract, relative to `protos`, in a stable order."""
    return sorted(path.relative_to(protos) for path in protos.glob("threadkeep/*/v*/*.proto"))


def generate(out: Path, protos: Path = PROTOS) -> list[Path]:
    """Writes stubs for every proto into `out`; returns the files written, relative to `out`.

    Raises:
        subprocess.CalledProcessError: protoc refused a proto (it says why on stderr).
    """
    files = proto_files(protos)
    include = Path(grpc_tools.__file__).parent / "_proto"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{protos}", f"-I{include}"),
        *(f"--python_out={out}", f"--grpc_python_out={out}", f"--mypy_out=quiet:{out}", f"--mypy_grpc_out=quiet:{out}"),
        *(str(file) for file in files),
    ]
    subprocess.run(command, check=True, env={**os.environ, "PATH": path})
    _drop_empty_services(out, files)
    for folder in sorted({file.parent for file in files}):
        for package in (folder.parent, folder):
            (out / package / "__init__.py").write_text(PACKAGE_DOC.format(package=package.as_posix()))
    return written(out, files)


def _drop_empty_services(out: Path, files: list[Path]) -> None:
    """A proto without services needs no gRPC module; protoc writes an empty one all the same."""
    for file in files:
        if file.stem.endswith("_service"):
            continue
        for suffix in ("_pb2_grpc.py", "_pb2_grpc.pyi"):
            (out / file.parent / f"{file.stem}{suffix}").unlink(missing_ok=True)


def written(root: Path, files: list[Path]) -> list[Path]:
    """The generated files under `root` in the packages of `files`, relative to it."""
    folders = sorted({parent for file in files for parent in (file.parent, file.parent.parent)})
    found = (path for folder in folders for pattern in PATTERNS for path in (root / folder).glob(pattern))
    return sorted(path.relative_to(root) for path in found)


def drift(fresh: Path) -> list[str]:
    """Generates into the empty folder `fresh` and says how the committed stubs differ; empty when they are current."""
    expected = set(generate(fresh))
    present = committed()
    problems = [f"missing: {path}" for path in sorted(expected - present)]
    problems += [f"without a proto: {path}" for path in sorted(present - expected)]
    for path in sorted(expected & present):
        if not filecmp.cmp(fresh / path, STUBS / path, shallow=False):
            problems.append(f"stale: {path}")
    return problems


def committed() -> set[Path]:
    """The generated files that the Python client holds now, relative to it."""
    packages = [path.relative_to(STUBS) / "any.proto" for path in STUBS.glob("threadkeep/*/v*") if path.is_dir()]
    return set(written(STUBS, packages))


def refresh() -> int:
    """Brings the Python client's stubs up to date, whole or not at all; returns how many files changed."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        expected = generate(fresh)
        changed = 0
        for path in sorted(committed() - set(expected)):
            (STUBS / path).unlink()
            changed += 1
        for path in expected:
            target = STUBS / path
            if target.exists() and filecmp.cmp(fresh / path, target, shallow=False):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / path, target)
            changed += 1
    return changed


def main() -> int:
    """`python -m tools.gen`."""
    print(f"{refresh()} files changed in {STUBS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
