"""What the contract must pass: `buf lint`, and `buf breaking` against the last released contract.

The released contract is a buf image, protos/released/<release>.binpb. Before the first release there is none, and
nothing can be broken yet.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
RELEASED = PROTOS / "released"
BUF = Path(sys.executable).parent / "buf"


def _buf(*arguments: str) -> list[str]:
    """Runs buf; gives its complaints, empty when it has none."""
    done = subprocess.run([str(BUF), *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return []
    return [*done.stdout.splitlines(), *done.stderr.splitlines()] or [f"buf ended with {done.returncode}"]


def lint(protos: Path = PROTOS) -> list[str]:
    """The complaints of `buf lint`, one per entry."""
    return _buf("lint", str(protos))


def image(target: Path, protos: Path = PROTOS) -> list[str]:
    """Writes the contract in `protos` as a buf image to `target`; gives the reasons when that fails."""
    return _buf("build", str(protos), "--output", str(target))


def last_release(released: Path = RELEASED) -> Path | None:
    """The image of the newest released contract, or None before the first release."""
    images = list(released.glob("*.binpb"))
    return max(images, key=lambda path: [int(part) for part in re.findall(r"\d+", path.stem)], default=None)


def breaking(protos: Path = PROTOS, released: Path = RELEASED) -> list[str]:
    """What in `protos` breaks clients of the last released contract, one complaint per entry."""
    against = last_release(released)
    return [] if against is None else _buf("breaking", str(protos), "--against", str(against))


def main() -> int:
    """`python -m tools.contract_gate`: lint and breaking; `... release NAME` keeps the contract as released."""
    if sys.argv[1:2] == ["release"]:
        problems = breaking() or image(RELEASED / f"{sys.argv[2]}.binpb")
    else:
        problems = lint() + breaking()
    print("\n".join(problems) if problems else "the contract is in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
