"""`threadkeep store`."""

from __future__ import annotations

import datetime
import json
from typing import Annotated, Any

import typer

from threadkeep.runtime.v1 import store_pb2
from threadkeep_cli.exits import Exit, UsageProblem
from threadkeep_cli.groups.common import All, Limit, RequestId
from threadkeep_cli.output import Column, field
from threadkeep_cli.parsing import parse_json
from threadkeep_cli.plain import to_plain
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Memory across threads: items under namespaces, LangGraph's Store.", no_args_is_help=True)

Namespace = Annotated[str, typer.Argument(help="The namespace, its labels joined by dots: users.ada.")]
Prefix = Annotated[str, typer.Argument(help="Where to look: a namespace and all below it. Default: everywhere.")]
Key = Annotated[str, typer.Argument(help="The item's key.")]
Offset = Annotated[int, typer.Option("--offset", min=0, help="How many to pass over.")]

ITEMS: tuple[Column, ...] = (
    ("NAMESPACE", lambda row: ".".join(row["namespace"])),
    ("KEY", field("key")),
    ("VALUE", lambda row: json.dumps(row["value"], ensure_ascii=False)),
    ("UPDATED", field("update_time")),
)


def _labels(namespace: str) -> list[str]:
    return namespace.split(".") if namespace else []


def _plain(item: store_pb2.StoreItem) -> dict[str, Any]:
    shown: dict[str, Any] = to_plain(item)
    shown["value"] = json.loads(item.value_json)
    del shown["value_json"]
    return shown


@command(app)
def get(session: Session, namespace: Namespace, key: Key) -> None:
    """Shows an item; exit code 3 if there is none."""
    found = session.client.store.get(_labels(namespace), key)
    if found is None:
        session.show.note("there is no such item")
        raise SystemExit(int(Exit.NOT_FOUND))
    session.show.one(_plain(found))


@command(app)
def put(
    session: Session,
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(help="A JSON object; @file reads it, @- standard input.")],
    ttl_minutes: Annotated[float | None, typer.Option("--ttl-minutes", min=0, help="How long it lives.")] = None,
    request_id: RequestId = None,
) -> None:
    """Stores an item, or overwrites it whole."""
    wanted = parse_json(value, "VALUE")
    if not isinstance(wanted, dict):
        raise UsageProblem('VALUE is a JSON object: {"text": "likes tea"}')
    ttl = None if ttl_minutes is None else datetime.timedelta(minutes=ttl_minutes)
    session.client.store.put(_labels(namespace), key, wanted, ttl=ttl, request_id=request_id)
    found = session.client.store.get(_labels(namespace), key)
    if found is not None:
        session.show.one(_plain(found))


@command(app)
def delete(session: Session, namespace: Namespace, key: Key, request_id: RequestId = None) -> None:
    """Deletes an item; a missing one is no error."""
    session.client.store.delete(_labels(namespace), key, request_id=request_id)
    session.show.note("deleted")


@command(app, "list")
def list_(
    session: Session, prefix: Prefix = "", limit: Limit = 50, everything: All = False, offset: Offset = 0
) -> None:
    """Lists items, the last put first."""
    _search(session, prefix, {}, limit, everything, offset)


@command(app)
def search(
    session: Session,
    prefix: Prefix = "",
    filter_: Annotated[
        str | None,
        typer.Option("--filter", help='A JSON object: {"kind": "note", "score": {"$gte": 10}}; @file reads it.'),
    ] = None,
    embedding: Annotated[
        str | None, typer.Option("--embedding", help="A JSON array of numbers: the nearest come first. @file reads it.")
    ] = None,
    limit: Limit = 50,
    everything: All = False,
    offset: Offset = 0,
) -> None:
    """Finds items by what they hold, or by an embedding that is near theirs."""
    wanted: dict[str, Any] = {}
    if filter_ is not None:
        wanted["filter"] = parse_json(filter_, "--filter")
        if not isinstance(wanted["filter"], dict):
            raise UsageProblem('--filter is a JSON object: {"kind": "note"}')
    if embedding is not None:
        wanted["query"] = _numbers(parse_json(embedding, "--embedding"))
    _search(session, prefix, wanted, limit, everything, offset)


@command(app)
def namespaces(
    session: Session,
    prefix: Annotated[str, typer.Option("--prefix", help="Begins with these labels; * is any one.")] = "",
    suffix: Annotated[str, typer.Option("--suffix", help="Ends with these labels; * is any one.")] = "",
    depth: Annotated[int | None, typer.Option("--depth", min=1, help="Only the first labels.")] = None,
    limit: Limit = 50,
    everything: All = False,
    offset: Offset = 0,
) -> None:
    """Lists namespaces that hold items."""
    most = None if everything else limit
    found = session.client.store.list_namespaces(
        prefix=_labels(prefix), suffix=_labels(suffix), max_depth=depth, limit=most, offset=offset
    )
    rows = [{"namespace": list(one)} for one in found]
    session.show.many(rows, ITEMS[:1], "no namespaces")


def _search(session: Session, prefix: str, wanted: dict[str, Any], limit: int, everything: bool, offset: int) -> None:
    most = None if everything else limit
    found = session.client.store.search(_labels(prefix), limit=most, offset=offset, **wanted)
    columns = (*ITEMS, ("SCORE", field("score"))) if "query" in wanted else ITEMS
    session.show.many([_plain(one) for one in found], columns, "no items")


def _numbers(value: Any) -> list[float]:
    if not isinstance(value, list) or not all(isinstance(one, int | float) for one in value):
        raise UsageProblem("--embedding is a JSON array of numbers: [0.1, 0.2]")
    return [float(one) for one in value]
