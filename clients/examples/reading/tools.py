"""The tools. Each does one thing with the file, writes one line into the ledger, and returns facts, never the file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from langchain_core.tools import InjectedToolCallId, tool

from reading import facts, ledger, report
from threadkeep.worker import current_run

CallId = Annotated[str, InjectedToolCallId]


@tool
def digest_text(path: str, call_id: CallId) -> dict[str, Any]:
    """Takes the fingerprint of a file: its SHA-256 and its size in bytes."""
    sha256, size = facts.digest(_file(path))
    ledger.record(current_run(), "digest_text", call_id)
    return {"sha256": sha256, "size": size}


@tool
def count_text(path: str, call_id: CallId) -> dict[str, Any]:
    """Counts a file's lines, words and Markdown headings."""
    lines, words, headings = facts.counts(_file(path))
    ledger.record(current_run(), "count_text", call_id)
    return {"lines": lines, "words": words, "headings": headings}


@tool
def rank_words(path: str, call_id: CallId) -> dict[str, Any]:
    """Finds the five commonest words of a file."""
    ranked = facts.commonest(_file(path))
    ledger.record(current_run(), "rank_words", call_id)
    return {"commonest": [[word, count] for word, count in ranked]}


@tool
def write_report(
    path: str,
    sha256: str,
    size: int,
    lines: int,
    words: int,
    headings: int,
    commonest: list[list[Any]],
    call_id: CallId,
) -> dict[str, Any]:
    """Writes the report on a file as an artifact. Takes what the other tools returned."""
    run = current_run()
    file = Path(path)
    ranked = [(str(word), int(count)) for word, count in commonest]
    text = report.render(
        file.name, sha256=sha256, size=size, lines=lines, words=words, headings=headings, commonest=ranked
    )
    # `once`: should this step run again after a crash, it gets this version again and makes no second one.
    version = run.artifacts.upload(
        text.encode(),
        f"report on {file.stem[:200]}.md",
        once=f"report/{call_id}",
        type="report",
        media_type="text/markdown",
    )
    ledger.record(run, "write_report", call_id)
    return {"artifact_id": version.artifact_id, "version": version.version, "name": version.metadata.name}


@tool
def publish_report(artifact_id: str, call_id: CallId) -> dict[str, Any]:
    """Publishes a report, as a version that carries the label of its approval."""
    run = current_run()
    draft = run.artifacts.client.artifacts.get(artifact_id)
    version = run.artifacts.upload(
        run.artifacts.read(artifact_id),
        draft.metadata.name,
        once=f"publish/{call_id}",
        artifact_id=artifact_id,
        type=draft.metadata.type,
        media_type=draft.metadata.media_type,
        labels={"approved": "yes"},
    )
    ledger.record(run, "publish_report", call_id)
    return {"artifact_id": artifact_id, "version": version.version}


def _file(path: str) -> Path:
    found = Path(path)
    if not found.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return found
