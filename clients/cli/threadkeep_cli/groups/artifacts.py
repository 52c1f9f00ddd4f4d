"""`threadkeep artifacts`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.groups.common import All, Limit, RequestId, RunOption, SessionOption, TaskOption, page_size, up_to
from threadkeep_cli.output import Column, field
from threadkeep_cli.parsing import parse_pairs
from threadkeep_cli.session import Session, command
from threadkeep_cli.transfers import Counted, transfer

app = typer.Typer(help="Artifacts: versioned content that agents produce.", no_args_is_help=True)

COLUMNS: tuple[Column, ...] = (
    ("ARTIFACT", field("artifact_id")),
    ("VERSION", field("version")),
    ("NAME", field("metadata.name")),
    ("TYPE", field("metadata.type")),
    ("MEDIA TYPE", field("metadata.media_type")),
    ("SIZE", field("size")),
    ("CREATED", field("create_time")),
)


class Seen(StrEnum):
    """Who may read a version."""

    PRIVATE = "private"
    RUN = "run"
    PUBLIC = "public"


Labels = Annotated[list[str] | None, typer.Option("--label", "-l", help="A label as name=value. Repeatable.")]
ArtifactId = Annotated[str, typer.Argument(help="The artifact's id.")]
Version = Annotated[int, typer.Option("--version", min=0, help="The version. Default: the latest.")]


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with open(file, "rb") as opened:
        yield opened


@command(app)
def put(
    session: Session,
    file: Annotated[str, typer.Argument(help="The file; `-` is standard input.")],
    id_: Annotated[
        str | None, typer.Option("--id", help="The artifact that gets a version. Default: a new one.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="With --id: the artifact must be new.")] = False,
    expected_version: Annotated[
        int | None, typer.Option("--expected-version", min=0, help="Refuse if it is not the latest. 0: must be new.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="A name. Default: the file's.")] = None,
    type_: Annotated[str, typer.Option("--type", help="Your own type, such as report.")] = "",
    media_type: Annotated[str | None, typer.Option("--media-type", help="Default: detected.")] = None,
    path: Annotated[str | None, typer.Option("--path", help="A virtual path, such as /notes/plan.md.")] = None,
    visibility: Annotated[
        Seen, typer.Option("--visibility", help="private needs --run, run needs --session.")
    ] = Seen.PUBLIC,
    label: Labels = None,
    of_session: SessionOption = None,
    task: TaskOption = None,
    run: RunOption = None,
    resume: Annotated[
        str | None, typer.Option("--resume", help="A name for the upload: said again, it goes on where it broke.")
    ] = None,
    request_id: RequestId = None,
) -> None:
    """Uploads a file as a new version."""
    if file == "-":
        if name is None:
            raise UsageProblem("what comes from standard input needs a --name")
    elif not Path(file).is_file():
        raise UsageProblem(f"there is no file {file}")
    size = None if file == "-" else os.path.getsize(file)
    with _opened(file) as source, transfer("sending", size) as moved:
        version = session.client.artifacts.upload(
            cast(BinaryIO, Counted(source, moved)),
            name or Path(file).name,
            upload_id=resume,
            artifact_id=id_,
            create_only=create,
            expected_version=expected_version,
            type=type_,
            media_type=media_type or "",
            path=path,
            visibility=visibility.value,
            labels=parse_pairs(label or [], "--label"),
            session_id=of_session,
            task_id=task,
            run_id=run,
            request_id=request_id,
        )
    session.show.one(version)


@command(app)
def get(
    session: Session,
    artifact_id: ArtifactId,
    version: Version = 0,
    to: Annotated[str | None, typer.Option("--to", help="The file to write. Default: standard output.")] = None,
) -> None:
    """Downloads content, verified, into a file or to standard output."""
    if to is None or to == "-":
        _write_out(session, artifact_id, version)
        return
    found = session.client.artifacts.get(artifact_id, version)
    with transfer("receiving", found.size) as moved:
        found = session.client.artifacts.download_to(to, artifact_id, found.version, on_progress=moved)
    session.show.one(found)


@command(app)
def cat(session: Session, artifact_id: ArtifactId, version: Version = 0) -> None:
    """Writes content to standard output."""
    _write_out(session, artifact_id, version)


def _write_out(session: Session, artifact_id: str, version: int) -> None:
    for chunk in session.client.artifacts.download(artifact_id, version):
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


@command(app)
def diff(
    session: Session,
    artifact_id: ArtifactId,
    before: Annotated[int, typer.Argument(min=1, help="The older version.")],
    after: Annotated[int, typer.Argument(min=0, help="The newer version. Default: the latest.")] = 0,
    around: Annotated[int, typer.Option("--context", min=0, max=1000, help="Lines around each change.")] = 3,
) -> None:
    """Compares two versions of a text."""
    found = session.client.artifacts.diff(artifact_id, before, after, context_lines=around)
    sys.stdout.write(found.diff)


@command(app)
def show(session: Session, artifact_id: ArtifactId, version: Version = 0) -> None:
    """Shows what a version is, without its content."""
    session.show.one(session.client.artifacts.get(artifact_id, version))


@command(app, "list")
def list_(
    session: Session,
    name: Annotated[str | None, typer.Option("--name", help="Only with this name.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only of this type.")] = None,
    of_session: SessionOption = None,
    run: RunOption = None,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="Only of this checkpoint.")] = None,
    path: Annotated[str | None, typer.Option("--path", help="Only with a path that starts so; sorted by path.")] = None,
    label: Labels = None,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists artifacts by their latest version, newest first."""
    found = session.client.artifacts.list(
        name=name,
        type=type_,
        session_id=of_session,
        run_id=run,
        checkpoint_id=checkpoint,
        path_prefix=path,
        labels=parse_pairs(label or [], "--label"),
        page_size=page_size(limit, everything),
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no artifacts")


@command(app)
def versions(session: Session, artifact_id: ArtifactId, limit: Limit = 50, everything: All = False) -> None:
    """Lists an artifact's versions, newest first."""
    found = session.client.artifacts.list_versions(artifact_id, page_size=page_size(limit, everything))
    session.show.many(up_to(found, limit, everything), COLUMNS)


@command(app)
def delete(
    session: Session,
    artifact_id: ArtifactId,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Only this version.")] = None,
    expected_version: Annotated[
        int | None, typer.Option("--expected-version", min=1, help="Refuse if it is not the latest.")
    ] = None,
    request_id: RequestId = None,
) -> None:
    """Deletes an artifact with all of its versions, or one of them. `restore` brings it back for a while."""
    if version is None:
        answer = session.client.artifacts.delete(artifact_id, expected_version=expected_version, request_id=request_id)
        session.show.one(answer)
        return
    if expected_version is not None:
        raise UsageProblem("--expected-version is for the whole artifact")
    session.show.one(session.client.artifacts.delete_version(artifact_id, version, request_id=request_id))


@command(app)
def restore(
    session: Session,
    artifact_id: ArtifactId,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Only this version. Default: the artifact.")
    ] = None,
    request_id: RequestId = None,
) -> None:
    """Brings back what was deleted."""
    session.show.one(session.client.artifacts.restore(artifact_id, version or 0, request_id=request_id).latest)


@command(app)
def usage(session: Session) -> None:
    """Shows what the scope uses, and how much it may use."""
    session.show.one(session.client.artifacts.usage())
