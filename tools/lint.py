"""Every check that needs no test run: style, types, the import law, the contract's lint, stale stubs.

Runs them all, prints the output of the failing ones, and exits 1 when there is any.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools import contract_gate, gen

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

Check = Callable[[], list[str]]


def _command(*arguments: str) -> Check:
    def check() -> list[str]:
        done = subprocess.run([str(BIN / arguments[0]), *arguments[1:]], cwd=ROOT, capture_output=True, text=True)
        return [] if done.returncode == 0 else [*done.stdout.splitlines(), *done.stderr.splitlines()]

    return check


def _drift() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        problems = gen.drift(Path(folder))
    return [*problems, "run `make gen`"] if problems else []


CHECKS: dict[str, Check] = {
    "ruff check": _command("ruff", "check", "."),
    "ruff format": _command("ruff", "format", "--check", "."),
    "import law": _command("lint-imports", "--no-cache"),
    "stubs are current": _drift,
    "buf lint": contract_gate.lint,
    "buf breaking": contract_gate.breaking,
    "mypy": _command("mypy"),
}


def main() -> int:
    """`python -m tools.lint`."""
    failed = 0
    for name, check in CHECKS.items():
        start = time.monotonic()
        problems = check()
        print(f"{'FAILED' if problems else 'ok':6} {name} ({time.monotonic() - start:.1f} s)", flush=True)
        for line in problems:
            print(f"       {line}", flush=True)
        failed += bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
