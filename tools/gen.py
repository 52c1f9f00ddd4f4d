"""Generates the stubs from protos/ into the clients, as protos/buf.gen.yaml says, and tells whether they are current.

Every plugin is pinned in constraints.txt, so that the same protos give the same bytes everywhere.
"""

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PYTHON = Path("clients") / "python"
PACKAGE_DOC = '"""Generated from protos/{package}; `make gen` writes it, nobody edits it."""\n'


def generate(out: Path, protos: Path = PROTOS) -> set[Path]:
    """Generates from `protos` below `out`, laid out as the repository is; returns the files, relative to `out`.

    Raises:
        subprocess.CalledProcessError: a proto is in error (buf says where, on stderr).
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = ["buf", "generate", str(protos), "--template", str(PROTOS / "buf.gen.yaml"), "--output", str(out)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PATH": path})
    for stub in (out / PYTHON).rglob("*_pb2_grpc.pyi"):
        if not stub.with_suffix(".py").exists():
            stub.unlink()  # mypy-protobuf writes one for files without services, too
    for folder in _packages(out):
        document = PACKAGE_DOC.format(package=folder.relative_to(out / PYTHON).as_posix())
        (folder / "__init__.py").write_text(document)
    return generated(out)


def _packages(root: Path) -> list[Path]:
    """The folders of generated Python packages below `root`: threadkeep/<service> and threadkeep/<service>/v<n>."""
    versions = [path for path in (root / PYTHON).glob("threadkeep/*/v[0-9]*") if path.is_dir()]
    return sorted({folder for version in versions for folder in (version.parent, version)})


def generated(root: Path = ROOT) -> set[Path]:
    """The generated files below `root`, relative to it."""
    found = (path for folder in _packages(root) for path in folder.glob("*.py*") if path.is_file())
    return {path.relative_to(root) for path in found}


def drift(fresh: Path) -> list[str]:
    """Generates into the empty folder `fresh` and says how the repository differs; empty when it is current."""
    expected, present = generate(fresh), generated()
    problems = [f"missing: {path}" for path in sorted(expected - present)]
    problems += [f"without a proto: {path}" for path in sorted(present - expected)]
    for path in sorted(expected & present):
        if not filecmp.cmp(fresh / path, ROOT / path, shallow=False):
            problems.append(f"stale: {path}")
    return problems


def refresh() -> list[str]:
    """Brings the stubs up to date, whole or not at all; returns what was done to which file."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        changes = drift(fresh)
        for change in changes:
            path = Path(change.split(": ", 1)[1])
            if (fresh / path).exists():
                (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(fresh / path, ROOT / path)
            else:
                (ROOT / path).unlink()
    return changes


def main() -> int:
    """`python -m tools.gen`."""
    try:
        changes = refresh()
    except subprocess.CalledProcessError as error:
        return error.returncode
    print("\n".join(changes) if changes else "the stubs are current")
    return 0


if __name__ == "__main__":
    sys.exit(main())
