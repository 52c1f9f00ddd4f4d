"""`threadkeep retention`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.groups.common import ExpectedRevision, RequestId, SessionOption
from threadkeep_cli.parsing import parse_pairs
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Retention: how long the scope keeps its past.", no_args_is_help=True)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_RULE = "such as age=30d,count=100,keep=5: what is older or beyond the newest 100 goes, the newest 5 stay."
Rule = Annotated[str | None, typer.Option(help=_RULE)]


@command(app)
def get(session: Session) -> None:
    """Shows the scope's policy."""
    session.show.one(session.client.retention.get())


@command(app, "set")
def set_(
    session: Session,
    tasks: Rule = None,
    sessions: Rule = None,
    checkpoints: Rule = None,
    events: Rule = None,
    audit: Rule = None,
    receipts: Annotated[str | None, typer.Option("--receipts", help="How long receipts live, such as 7d.")] = None,
    delivered: Annotated[
        str | None, typer.Option("--delivered", help="How long delivered messages of the outbox live, such as 7d.")
    ] = None,
    expected_revision: ExpectedRevision = None,
    request_id: RequestId = None,
) -> None:
    """Replaces the scope's policy: what gets no rule stays for ever."""
    policy = session.client.retention.set(
        tasks=_rule(tasks, "--tasks"),
        sessions=_rule(sessions, "--sessions"),
        checkpoints=_rule(checkpoints, "--checkpoints"),
        events=_rule(events, "--events"),
        audit=_rule(audit, "--audit"),
        receipts_max_age=None if receipts is None else _seconds(receipts, "--receipts"),
        delivered_max_age=None if delivered is None else _seconds(delivered, "--delivered"),
        expected_revision=expected_revision,
        request_id=request_id,
    )
    session.show.one(policy)


@command(app)
def purge(session: Session, only: SessionOption = None, request_id: RequestId = None) -> None:
    """Applies the policy now, everywhere or in one session."""
    session.show.one(session.client.retention.purge(session_id=only, request_id=request_id))


def _rule(text: str | None, option: str) -> dict[str, Any] | None:
    if text is None:
        return None
    parts = parse_pairs([part for part in text.split(",") if part.strip()], option)
    unknown = set(parts) - {"age", "count", "keep"}
    if unknown or not parts:
        raise UsageProblem(f"{option} takes age, count and keep, {_RULE}")
    rule: dict[str, Any] = {}
    if "age" in parts:
        rule["max_age"] = _seconds(parts["age"], option)
    for name, field in (("count", "max_count"), ("keep", "keep_latest")):
        if name in parts:
            if not parts[name].isdecimal():
                raise UsageProblem(f"{option}: {name} is a number, not `{parts[name]}`")
            rule[field] = int(parts[name])
    return rule


def _seconds(text: str, option: str) -> float:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal():
        raise UsageProblem(f"{option} takes a time such as 90s, 15m, 12h or 30d, not `{text}`")
    return float(int(number) * _UNITS[unit])
