"""`threadkeep config`: definitions of agents, and of what they work with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from threadkeep._api.config import to_type
from threadkeep.config.v1 import entity_pb2, set_pb2, watch_pb2
from threadkeep.config_files import NoDefinitions, read_directories
from threadkeep.errors import EntityNotFound, ThreadkeepError
from threadkeep_cli.changes import field_lines, set_lines
from threadkeep_cli.definitions import fields_of, parse_definition, read_definition, to_yaml
from threadkeep_cli.editor import edit_text
from threadkeep_cli.exits import Exit, UsageProblem
from threadkeep_cli.groups.common import All, Limit, RequestId, page_size, up_to
from threadkeep_cli.output import Column, field, short, short_name
from threadkeep_cli.parsing import parse_scope
from threadkeep_cli.plain import to_plain
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Definitions: agents, and what they work with.", no_args_is_help=True)

COLUMNS: tuple[Column, ...] = (
    ("TYPE", short("type")),
    ("NAME", field("name")),
    ("SCOPE", field("scope")),
    ("REVISION", field("revision")),
    ("SOURCE", lambda row: row["source"].get("path") or short_name(row["source"].get("kind", ""))),
    ("", lambda row: "hidden" if row["hidden"] else "deleted" if row["deleted"] else ""),
)

Type = Annotated[str, typer.Argument(help="agent, tool, provider, skill, mcp_server, defaults, ...")]
Name = Annotated[str, typer.Argument(help="The entity's name.")]
Narrower = Annotated[
    str | None, typer.Option("--in", help="A narrower scope than --scope, which must contain it: tenant=acme,user=u1.")
]
Expected = Annotated[
    int | None, typer.Option("--expected-revision", min=0, help="Refuse if it is not the current one. 0: must be new.")
]


def read_set(directories: list[Path]) -> list[set_pb2.SetFile]:
    """The files of directories. Raises UsageProblem."""
    try:
        return read_directories(directories)
    except NoDefinitions as error:
        raise UsageProblem(str(error)) from error
    except OSError as error:
        raise UsageProblem(f"{error.filename} can't be read: {error.strerror}") from error


def _target(narrower: str | None) -> dict[str, str] | None:
    return None if narrower is None else parse_scope(narrower)


@command(app)
def apply(
    session: Session,
    directories: Annotated[
        list[Path], typer.Argument(help="Has agents/, tools/, skills/, ... Of several, each is a layer on top.")
    ],
    prune: Annotated[bool, typer.Option("--prune", help="Delete what came from files that are gone.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    request_id: RequestId = None,
) -> None:
    """Applies a directory as one set in the scope: what is added or changed there becomes revisions.

    Exit code 2 if a file has faults; the others are applied nevertheless.
    """
    answer = session.client.config.apply_set(
        read_set(directories), dry_run=dry_run, keep_missing=not prune, with_fields=True, request_id=request_id
    )
    if session.show.is_json:
        session.show.one(answer)
    else:
        for line in set_lines(answer.changes):
            session.show.text(line)
        for problem in answer.problems:
            path = directories[min(problem.layer, len(directories) - 1)] / problem.path
            where = f"{path}:{problem.line}" if problem.line else str(path)
            session.show.text(f"! fault      {where}: {problem.message}")
        if any(change.action == set_pb2.SET_ACTION_KEPT for change in answer.changes):
            session.show.note("--prune deletes what is kept")
        session.show.note(f"revision {answer.config_revision}" + (" (dry run)" if dry_run else ""))
    if answer.problems:
        raise SystemExit(int(Exit.USAGE))


@command(app)
def export(
    session: Session,
    directory: Annotated[Path, typer.Argument(help="Where the files go. It is made if it is not there.")],
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only this type. Repeatable.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Writes the definitions of exactly this scope as files that `apply` takes.

    Exit code 2 if there is one that no file can hold; the others are written nevertheless.
    """
    written, problems = [], []
    for one in session.client.config.export_set(types=type_ or (), page_size=1000):
        if isinstance(one, set_pb2.SetProblem):
            problems.append(one)
            continue
        path = directory / one.path
        if not path.resolve().is_relative_to(directory.resolve()):
            raise UsageProblem(f"{one.path} would lie outside of {directory}")
        if path.exists() and not force:
            raise UsageProblem(f"{path} is there already; --force writes over it")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one.content)
        written.append(one.path)
    if session.show.is_json:
        session.show.document({"files": written, "problems": [to_plain(problem) for problem in problems]})
    else:
        for name in written:
            session.show.text(name)
        for problem in problems:
            session.show.text(f"! {problem.path}: {problem.message}")
        session.show.note(f"{len(written)} files in {directory}")
    if problems:
        raise SystemExit(int(Exit.USAGE))


@command(app)
def edit(
    session: Session,
    type_: Type,
    name: Name,
    narrower: Narrower = None,
    request_id: RequestId = None,
) -> None:
    """Opens the entity of exactly this scope in $VISUAL or $EDITOR as YAML, and puts what comes back.

    One that is not there begins empty. Nothing is written over that somebody else wrote meanwhile.
    """
    target = _target(narrower)
    try:
        entity = session.client.config.get(type_, name, target_scope=target)
    except EntityNotFound:
        entity = entity_pb2.Entity()
    if entity.source.kind == entity_pb2.SOURCE_KIND_FILE:
        raise UsageProblem(f"{name} comes from the file {entity.source.path}: change that, and apply it again")
    before = getattr(entity.definition, type_, None)
    head = f"# The {type_} {name}. Its fields: {', '.join(fields_of(type_))}\n"
    text = head + (to_yaml(before) if before is not None else "")
    changed, kept = edit_text(text, f"{name}.yaml")
    if changed == text:
        kept.unlink()
        session.show.note("nothing changed")
        return
    try:
        definition = parse_definition(type_, changed, str(kept))
        answer = session.client.config.put(
            name, definition, expected_revision=entity.revision, target_scope=target, request_id=request_id
        )
    except (ThreadkeepError, UsageProblem):
        session.show.note(f"your text is kept in {kept}")
        raise
    kept.unlink()
    session.show.one(answer.entity)
    session.show.note("changed" if answer.changed else "nothing changed")


@command(app)
def get(session: Session, type_: Type, name: Name, narrower: Narrower = None) -> None:
    """Shows the entity of exactly this scope."""
    session.show.one(session.client.config.get(type_, name, target_scope=_target(narrower)))


@command(app)
def resolve(session: Session, type_: Type, name: Name) -> None:
    """Shows the entity that counts in this scope, inherited or not."""
    session.show.one(session.client.config.resolve(type_, name))


@command(app, "list")
def list_(
    session: Session,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only this type. Repeatable.")] = None,
    inherited: Annotated[bool, typer.Option("--inherited", help="Also what broader scopes define.")] = False,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists entities."""
    found = session.client.config.list(
        types=type_ or (), include_inherited=inherited, page_size=page_size(limit, everything)
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no entities")


@command(app)
def put(
    session: Session,
    type_: Type,
    name: Name,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="YAML or JSON of the definition; `-` is stdin.")
    ] = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Hide what the scope would inherit.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Write only this field of what is there, such as system_prompt. Repeatable."),
    ] = None,
    narrower: Narrower = None,
    expected_revision: Expected = None,
    request_id: RequestId = None,
) -> None:
    """Creates or replaces an entity, or with --only some of its fields."""
    if (file is None) != hidden or (hidden and only):
        raise UsageProblem("say what it is with --file, or that it is --hidden; one of them")
    given: dict[str, Any] = {
        "expected_revision": expected_revision,
        "target_scope": _target(narrower),
        "request_id": request_id,
    }
    if file is None:
        answer = session.client.config.hide(type_, name, **given)
    elif only:
        answer = session.client.config.update(name, read_definition(type_, file), only, **given)
    else:
        answer = session.client.config.put(name, read_definition(type_, file), **given)
    session.show.one(answer.entity)
    session.show.note("changed" if answer.changed else "nothing changed")


@command(app)
def delete(
    session: Session,
    type_: Type,
    name: Name,
    narrower: Narrower = None,
    expected_revision: Expected = None,
    request_id: RequestId = None,
) -> None:
    """Deletes an entity of exactly this scope."""
    tombstone = session.client.config.delete(
        type_, name, expected_revision=expected_revision, target_scope=_target(narrower), request_id=request_id
    )
    session.show.one(tombstone)


@command(app)
def explain(session: Session, type_: Type, name: Name) -> None:
    """Shows every candidate in order, and why the winner won."""
    answer = session.client.config.explain(type_, name)
    if session.show.is_json:
        session.show.one(answer)
        return
    columns: tuple[Column, ...] = (
        ("", lambda row: "wins" if row["winner"] else ""),
        ("SCOPE", field("entity.scope")),
        ("REVISION", field("entity.revision")),
        ("WHY", field("explanation")),
        ("FIELDS", lambda row: ", ".join(row.get("counting_fields", ()))),
    )
    session.show.many(answer.candidates, columns, "no candidates")


@command(app)
def manifest(session: Session, agent: Annotated[str, typer.Argument(help="The agent's name.")]) -> None:
    """Shows an agent with all that it depends on, pinned."""
    answer = session.client.config.resolve_manifest(agent)
    import json

    plain = {
        "digest": answer.digest,
        "agent_revision": answer.agent_revision,
        "config_revision": answer.config_revision,
        "manifest": json.loads(answer.manifest_json),
    }
    session.show.document(plain)


@command(app)
def history(
    session: Session, type_: Type, name: Name, narrower: Narrower = None, limit: Limit = 50, everything: All = False
) -> None:
    """Lists an entity's revisions, newest first."""
    found = session.client.config.list_revisions(
        type_, name, target_scope=_target(narrower), page_size=page_size(limit, everything)
    )
    columns = (*COLUMNS[:2], *COLUMNS[3:], ("CHANGED", field("update_time")))
    session.show.many(up_to(found, limit, everything), columns)


@command(app)
def diff(
    session: Session,
    type_: Type,
    name: Name,
    from_revision: Annotated[int, typer.Argument(min=1, help="The older revision.")],
    to_revision: Annotated[int, typer.Argument(min=0, help="The newer one. 0: the current one.")] = 0,
    narrower: Narrower = None,
) -> None:
    """Shows what changed between two revisions."""
    changes = session.client.config.diff_revisions(
        type_, name, from_revision, to_revision, target_scope=_target(narrower)
    )
    if session.show.is_json:
        session.show.document([to_plain(change) for change in changes])
        return
    for line in field_lines(changes):
        session.show.text(line)
    if not changes:
        session.show.note("no differences")


@command(app)
def rollback(
    session: Session,
    type_: Type,
    name: Name,
    to_revision: Annotated[int, typer.Argument(min=1, help="The revision whose content comes back.")],
    narrower: Narrower = None,
    expected_revision: Expected = None,
    request_id: RequestId = None,
) -> None:
    """Writes an older revision's content again, as a new revision."""
    answer = session.client.config.rollback(
        type_,
        name,
        to_revision,
        expected_revision=expected_revision,
        target_scope=_target(narrower),
        request_id=request_id,
    )
    session.show.one(answer.entity)


@command(app)
def watch(
    session: Session,
    after_revision: Annotated[
        int | None, typer.Option("--after", min=0, help="Only what changed after this revision. Default: a snapshot.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when the snapshot is complete.")] = False,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only this type. Repeatable.")] = None,
    name: Annotated[list[str] | None, typer.Option("--name", help="Only this name. Repeatable.")] = None,
) -> None:
    """Shows definitions as they change, line by line: first those that are there."""
    if once and after_revision is not None:
        raise UsageProblem("--once ends after the snapshot, and --after asks for none")
    types = [to_type(one) for one in type_ or ()]
    filters = [watch_pb2.WatchFilter(filter_id="cli", types=types, names=name or ())]
    with session.patient_client.config.watch(filters, after_revision=after_revision) as frames:
        for frame in frames:
            if frame.HasField("synced"):
                session.show.line({"synced": True, "revision": frame.revision}, lambda row: f"-- at {row['revision']}")
                if once:
                    return
            for change in frame.changes.changes:
                session.show.line(change, _line)


def _line(row: dict[str, Any]) -> str:
    entity = row.get("entity", row)
    state = "deleted" if entity.get("deleted") else "hidden" if entity.get("hidden") else "put"
    scope = ",".join(f"{key}={value}" for key, value in entity.get("scope", {}).items()) or "{}"
    kind = short_name(entity.get("type", ""))
    return f"{entity.get('revision', '')}  {state:<8} {kind} {entity.get('name', '')}  {scope}"
