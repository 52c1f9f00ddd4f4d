"""Commands for LangGraph users: `python -m threadkeep.langgraph import postgresql://... --scope tenant=acme`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from threadkeep.client import DEFAULT_TARGET, Client
from threadkeep.errors import ThreadkeepError
from threadkeep.langgraph.importing import Importer, ImportRefused, Report

PROGRESS_SECONDS = 2.0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m threadkeep.langgraph")
    commands = parser.add_subparsers(dest="command", required=True)
    copy = commands.add_parser(
        "import",
        help="copy threads of LangGraph's PostgresSaver",
        description="Copies threads of LangGraph's PostgresSaver; each keeps its id as session id. Values are not "
        "decoded. Safe to run again after a break: what is there is passed over.",
    )
    add = copy.add_argument
    add("source", metavar="postgresql://...", help="the database that PostgresSaver wrote; it is only read")
    add("--target", default=os.environ.get("THREADKEEP_TARGET", DEFAULT_TARGET), help="the address of threadkeep")
    add("--scope", action="append", default=[], metavar="KEY=VALUE", help="the scope to copy into; once for each key")
    add("--thread", action="append", metavar="ID", help="copy this thread; may be repeated (default: all)")
    add("--serde", metavar="MODULE:NAME", help="the graph's own serialiser, for old checkpoints with encrypted `Send`s")
    return parser.parse_args(argv)


def _scope(pairs: Sequence[str]) -> dict[str, str]:
    scope: dict[str, str] = {}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found:
            raise SystemExit(f"--scope takes KEY=VALUE, not {pair!r}")
        scope[key] = value
    return scope


def _serde(name: str | None) -> Any:
    if name is None:
        return None
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    return found() if callable(found) else found


def _import(arguments: argparse.Namespace) -> int:
    try:
        import psycopg
    except ImportError:
        print("the import reads with psycopg: pip install 'psycopg[binary]'", file=sys.stderr)
        return 2
    shown = 0.0

    def progress(report: Report) -> None:
        nonlocal shown
        if time.monotonic() - shown >= PROGRESS_SECONDS or report.threads == len(thread_ids):
            shown = time.monotonic()
            print(f"{report.threads}/{len(thread_ids)} threads, {report.checkpoints} checkpoints", file=sys.stderr)

    scope = _scope(arguments.scope)
    grant: Any = None if scope else "all"
    try:
        with (
            psycopg.connect(arguments.source, autocommit=True) as connection,
            Client(arguments.target, scope=scope, grant=grant) as client,
        ):
            importer = Importer(connection, client, _serde(arguments.serde))
            thread_ids = arguments.thread or importer.thread_ids()
            report = importer.run(thread_ids, progress)
    except (ImportRefused, ThreadkeepError, psycopg.Error) as error:
        print(error, file=sys.stderr)
        return 1
    upgraded = f", {report.upgraded} of them upgraded" if report.upgraded else ""
    print(f"{report.copied} of {report.threads} threads copied: {report.checkpoints} checkpoints{upgraded}")
    for thread_id, reason in report.refused.items():
        print(f"{thread_id}: {reason}", file=sys.stderr)
    return 1 if report.refused else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; gives the exit code."""
    return _import(_arguments(argv))


if __name__ == "__main__":
    sys.exit(main())
