"""`threadkeep state`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from threadkeep.runtime.v1 import state_pb2
from threadkeep_cli.groups.common import All, Limit, RequestId, page_size, up_to
from threadkeep_cli.output import Column, field, short_name
from threadkeep_cli.parsing import parse_enum, parse_json
from threadkeep_cli.session import Session, command

app = typer.Typer(help="State keys: values that a thread's later runs need.", no_args_is_help=True)

COLUMNS: tuple[Column, ...] = (
    ("KEY", field("declaration.key")),
    ("SCOPE", lambda row: short_name(row["declaration"]["scope"])),
    ("MERGE", lambda row: short_name(row["declaration"]["merge"])),
    ("VERSION", field("declaration.schema_version")),
    ("MAX BYTES", field("declaration.max_value_bytes")),
)


@command(app)
def declare(
    session: Session,
    key: Annotated[str, typer.Argument(help="The key's name.")],
    lives_with: Annotated[str, typer.Option("--lives-with", help="thread or run.")] = "thread",
    merge: Annotated[str, typer.Option("--merge", help="exclusive, disjoint or commutative.")] = "exclusive",
    schema_version: Annotated[int, typer.Option("--schema-version", min=1, help="Version of the value's shape.")] = 1,
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=0, help="Most bytes of the value. 0: the default.")] = 0,
    schema: Annotated[str | None, typer.Option("--schema", help="JSON Schema; @file reads it.")] = None,
    request_id: RequestId = None,
) -> None:
    """Declares a state key for all threads of the scope."""
    declaration = state_pb2.StateKeyDeclaration(
        key=key,
        scope=parse_enum(state_pb2.StateScope, "STATE_SCOPE", lives_with, "--lives-with"),  # type: ignore[arg-type]
        merge=parse_enum(state_pb2.StateMerge, "STATE_MERGE", merge, "--merge"),  # type: ignore[arg-type]
        schema_version=schema_version,
        max_value_bytes=max_bytes,
        schema_json=None if schema is None else json.dumps(parse_json(schema, "--schema")),
    )
    (declared,) = session.client.threads.declare_state_keys([declaration], request_id=request_id)
    session.show.one(declared)


@command(app, "list")
def list_(session: Session, limit: Limit = 50, everything: All = False) -> None:
    """Lists the scope's state keys."""
    found = session.client.threads.list_state_keys(page_size=page_size(limit, everything))
    session.show.many(up_to(found, limit, everything), COLUMNS, "no state keys")
