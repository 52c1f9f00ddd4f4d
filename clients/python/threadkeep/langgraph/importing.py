"""Copies the threads of LangGraph's PostgreSQL saver into threadkeep, checkpoint by checkpoint and undecoded.

Safe to run again: what is there stays as it is, and what came to the source since follows. Checkpoints of format
versions below 4 keep the `Send`s that they wait for among their parent's writes; here they move into the checkpoint
itself, as LangGraph's saver does when it reads them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import TASKS

from threadkeep.client import Client
from threadkeep.errors import FailedPrecondition, InvalidArgument, ResourceExhausted, ThreadkeepError
from threadkeep.langgraph import large
from threadkeep.runtime.v1 import checkpoint_pb2, commit_pb2

Row = dict[str, Any]

AT_ONCE = 50
"""Checkpoint rows that are read together; values are read for each checkpoint."""
COMMIT_BYTES = 1024 * 1024
COMMIT_OPS = 200

_COLUMNS = """SELECT column_name FROM information_schema.columns
    WHERE table_name = %s AND table_schema = ANY(current_schemas(false))"""
_THREADS = 'SELECT DISTINCT thread_id COLLATE "C" AS thread_id FROM checkpoints ORDER BY 1'
_KEYS = """SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = %s
    ORDER BY checkpoint_id COLLATE "C", checkpoint_ns COLLATE "C\""""
_CHECKPOINTS = """SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint::text AS checkpoint,
    metadata::text AS metadata FROM checkpoints
    WHERE thread_id = %s AND (checkpoint_ns, checkpoint_id) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""
_BLOBS = """SELECT channel, version, type, blob FROM checkpoint_blobs
    WHERE thread_id = %s AND checkpoint_ns = %s
    AND (channel, version) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""
_WRITES = """SELECT task_id, idx, channel, type, blob, {task_path} AS task_path FROM checkpoint_writes
    WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s ORDER BY 6, task_id, idx"""
_SENDS = """SELECT type, blob FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_id = %s AND channel = %s
    ORDER BY {task_path}, task_id, idx"""
_LAST_WRITES = """SELECT task_id, idx FROM checkpoint_writes
    WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"""


class ImportRefused(ValueError):
    """A thread, or the source, can't be imported. The message says why and what to do."""


@dataclass
class Report:
    """What an import did."""

    threads: int = 0
    """Threads of the source, so far as they were looked at."""
    copied: int = 0
    """Threads of which something was copied."""
    checkpoints: int = 0
    upgraded: int = 0
    """Checkpoints of a format version below 4 that waited for `Send`s."""
    refused: dict[str, str] = field(default_factory=dict)
    """Threads that could not be copied, and why."""


class Importer:
    """Copies threads of one source into the scope of one client."""

    def __init__(self, connection: Any, client: Client, serde: SerializerProtocol | None = None) -> None:
        """`connection` is psycopg's, in autocommit. `serde` is asked only for `Send`s that are not plain msgpack or
        JSON (encrypted ones). Raises ImportRefused for tables that no PostgresSaver made."""
        self._connection, self._client = connection, client
        self._serde: SerializerProtocol = serde or JsonPlusSerializer()
        columns = {table: self._columns(table) for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")}
        if not all(columns.values()) or "checkpoint_id" not in columns["checkpoints"]:
            raise ImportRefused(
                "the database has no tables of LangGraph's PostgresSaver on its search path (those of shallow savers "
                "are others); a schema is named with ?options=-csearch_path%3Dname"
            )
        # Older layouts have no paths.
        path = "task_path" if "task_path" in columns["checkpoint_writes"] else "''"
        self._writes, self._sends = _WRITES.format(task_path=path), _SENDS.format(task_path=path)
        self._limit: int | None = None

    def thread_ids(self) -> list[str]:
        """The source's threads."""
        return [row["thread_id"] for row in self._rows(_THREADS, ())]

    def run(self, thread_ids: Sequence[str], progress: Callable[[Report], object] = lambda _: None) -> Report:
        """Copies threads one by one; a thread that is refused does not keep the others away."""
        report = Report()
        for thread_id in thread_ids:
            report.threads += 1
            try:
                self.copy(thread_id, report)
            except (ImportRefused, FailedPrecondition, InvalidArgument, ResourceExhausted) as error:
                report.refused[thread_id] = str(error)
            progress(report)
        return report

    def copy(self, thread_id: str, report: Report) -> bool:
        """Copies one thread, in order of its checkpoint ids; False if everything was there. Raises ImportRefused, and
        what a commit raises."""
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            keys = [(row["checkpoint_ns"], row["checkpoint_id"]) for row in self._rows(_KEYS, (thread_id,))]
            if not keys or self._is_there(thread_id, *keys[-1]):
                return False
            batch: list[checkpoint_pb2.CheckpointOp] = []
            size = 0
            for op in self._operations(thread_id, keys, report):
                if batch and (size + op.ByteSize() > COMMIT_BYTES or len(batch) >= COMMIT_OPS):
                    self._commit(thread_id, batch)
                    batch, size = [], 0
                batch.append(op)
                size += op.ByteSize()
            self._commit(thread_id, batch)
        report.copied += 1
        return True

    def _is_there(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> bool:
        """True if the last checkpoint arrived with all of its writes, and so, since all go in order, everything."""
        found = self._client.checkpoints.get(thread_id, checkpoint_ns, checkpoint_id)
        if not found.HasField("checkpoint"):
            return False
        there = {(one.task_id, one.index) for one in found.checkpoint.pending_writes}
        wanted = self._rows(_LAST_WRITES, (thread_id, checkpoint_ns, checkpoint_id))
        return all((row["task_id"], row["idx"]) in there for row in wanted)

    def _operations(
        self, thread_id: str, keys: Sequence[tuple[str, str]], report: Report
    ) -> Iterator[checkpoint_pb2.CheckpointOp]:
        carried: set[tuple[str, str, str]] = set()
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            rows = self._rows(_CHECKPOINTS, (thread_id, *map(list, zip(*some, strict=True))))
            found = {(row["checkpoint_ns"], row["checkpoint_id"]): row for row in rows}
            for key in some:
                yield checkpoint_pb2.CheckpointOp(put=self._put(thread_id, found[key], carried, report))
                report.checkpoints += 1
                writes = [
                    checkpoint_pb2.PendingWrite(
                        task_id=row["task_id"],
                        index=row["idx"],
                        channel=row["channel"],
                        type=row["type"] or "",
                        data=bytes(row["blob"]),
                        task_path=row["task_path"],
                    )
                    for row in self._rows(self._writes, (thread_id, *key))
                ]
                if writes:
                    group = checkpoint_pb2.CheckpointWrites(checkpoint_ns=key[0], checkpoint_id=key[1], writes=writes)
                    yield checkpoint_pb2.CheckpointOp(writes=group)

    def _put(
        self, thread_id: str, row: Row, carried: set[tuple[str, str, str]], report: Report
    ) -> checkpoint_pb2.CheckpointPut:
        namespace, document = row["checkpoint_ns"], json.loads(row["checkpoint"])
        versions: dict[str, Any] = document.get("channel_versions") or {}
        named = {channel: _text(version) for channel, version in versions.items() if version is not None}
        wanted = [(channel, text) for channel, text in named.items() if (namespace, channel, text) not in carried]
        values = []
        if wanted:
            for blob in self._rows(_BLOBS, (thread_id, namespace, *map(list, zip(*wanted, strict=True)))):
                carried.add((namespace, blob["channel"], blob["version"]))
                values.append(
                    checkpoint_pb2.ChannelValue(
                        channel=blob["channel"],
                        version=blob["version"],
                        type=blob["type"],
                        data=bytes(blob["blob"] or b""),
                    )
                )
        text = row["checkpoint"]
        if document.get("v", 0) < 4 and row["parent_checkpoint_id"]:
            sends = self._rows(self._sends, (thread_id, row["parent_checkpoint_id"], TASKS))
            if sends:
                kind, data = _as_list([(one["type"] or "", bytes(one["blob"])) for one in sends], self._serde)
                versions[TASKS] = _own_version(versions, row["checkpoint_id"])
                document["channel_versions"] = versions
                text = json.dumps(document, ensure_ascii=False)
                value = checkpoint_pb2.ChannelValue(channel=TASKS, version=_text(versions[TASKS]), type=kind, data=data)
                values.append(value)
                report.upgraded += 1
        put = checkpoint_pb2.CheckpointPut(
            checkpoint_ns=namespace,
            checkpoint_id=row["checkpoint_id"],
            checkpoint_json=text.encode(),
            metadata_json=row["metadata"].encode(),
            channel_values=values,
        )
        if row["parent_checkpoint_id"]:
            put.parent_checkpoint_id = row["parent_checkpoint_id"]
        return put

    def _commit(self, thread_id: str, batch: Sequence[checkpoint_pb2.CheckpointOp]) -> None:
        if self._limit is None:
            self._limit = large.message_limit(self._client.info.get())
        operations = [op.put if op.HasField("put") else op.writes for op in batch]
        for call in large.stage(operations, self._limit):
            self._client.checkpoints._run(call)
        commit = commit_pb2.ThreadCommit(session_id=thread_id, checkpoint_ops=batch)
        try:
            self._client.threads.commit(commit)
        except ThreadkeepError as error:
            if error.reason != "CHECKPOINT_DELETED":
                raise
            raise ImportRefused(
                "the thread has gone on here, or was deleted or pruned here, since a part of it was imported; what is "
                "missing would come before what is there. Import it before it is used, or delete it here first."
            ) from error

    def _columns(self, table: str) -> set[str]:
        return {row["column_name"] for row in self._rows(_COLUMNS, (table,))}

    def _rows(self, statement: str, parameters: Sequence[Any]) -> list[Row]:
        from psycopg.rows import dict_row

        with self._connection.cursor(row_factory=dict_row) as cursor:
            found: list[Row] = cursor.execute(statement, parameters).fetchall()
        return found


def _text(version: Any) -> str:
    return version if isinstance(version, str) else json.dumps(version)


def _own_version(versions: dict[str, Any], checkpoint_id: str) -> Any:
    """A version that sorts with the checkpoint's others, and that no other checkpoint has, where versions are texts."""
    if not versions:
        return f"{1:032}.{checkpoint_id}"
    greatest = max(versions.values())
    return f"{greatest}.{checkpoint_id}" if isinstance(greatest, str) else greatest


def _as_list(values: Sequence[tuple[str, bytes]], serde: SerializerProtocol) -> tuple[str, bytes]:
    """The typed dump of a list of dumped values; without decoding them where their encoding allows it."""
    kinds = {kind for kind, _ in values}
    if kinds == {"msgpack"}:
        # https://github.com/msgpack/msgpack/blob/master/spec.md#array-format-family
        count = len(values)
        head = bytes([0x90 | count]) if count < 16 else struct.pack(">BH", 0xDC, count)
        if count < 1 << 16:
            return "msgpack", head + b"".join(data for _, data in values)
    if kinds == {"json"}:
        return "json", b"[" + b",".join(data for _, data in values) + b"]"
    try:
        kind, data = serde.dumps_typed([serde.loads_typed(value) for value in values])
    except Exception as error:
        raise ImportRefused(
            f"`Send`s of an old checkpoint can't be decoded ({', '.join(sorted(kinds))}: {error}); name the serialiser "
            "that the graph used with --serde"
        ) from error
    return kind, bytes(data)
