"""`make rules`: one line per rule of the contract, with its id, the number of tests that prove it, and the tests.

The list of rules is tests/architecture/rules.txt. A rule without a test shows as 0; a test that names an unknown rule
is an error.
"""

import contextlib
import io
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "tests" / "architecture" / "rules.txt"


def rule_titles() -> dict[str, str]:
    """Rule id to short title, in the contract's order."""
    lines = (line.split(maxsplit=1) for line in RULES.read_text().splitlines() if line and not line.startswith("#"))
    return {rule: title.strip() for rule, title in lines}


class RuleCollector:
    """A pytest plugin that notes which tests carry which rule; parameters of one test count as one."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, None]] = defaultdict(dict)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Reads the markers of every collected test."""
        for item in items:
            for marker in item.iter_markers("rule"):
                for rule in marker.args:
                    self.tests[rule][item.nodeid.split("[", 1)[0]] = None


def collect() -> dict[str, list[str]]:
    """Rule id to the node ids of its tests.

    Raises:
        RuntimeError: pytest could not collect the tests.
    """
    collector = RuleCollector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider"], plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"pytest could not collect the tests:\n{said.getvalue()}")
    return {rule: list(tests) for rule, tests in collector.tests.items()}


def main() -> int:
    """`python -m tools.rules`."""
    titles = rule_titles()
    tests = collect()
    for rule, title in titles.items():
        found = tests.get(rule, [])
        print(f"{rule:4} {title:32} {len(found):3}  {' '.join(found) or '-'}")
    unknown = sorted(set(tests) - set(titles))
    if unknown:
        print(f"tests name rules that the contract does not have: {', '.join(unknown)}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
