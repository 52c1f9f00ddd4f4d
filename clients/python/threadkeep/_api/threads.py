"""The thread's write boundary, and the checkpoint calls of savers that are not bound to a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from threadkeep._api.values import given, to_timestamp
from threadkeep._rpc.method import Call, PagedCall, method, new_request_id, whole
from threadkeep.runtime.v1 import (
    audit_pb2,
    checkpoint_pb2,
    checkpoint_service_pb2,
    commit_pb2,
    state_pb2,
    thread_service_pb2,
)

_COMMIT = method(thread_service_pb2, "ThreadService", "Commit")
_VIEW = method(thread_service_pb2, "ThreadService", "GetThreadView")
_LIST_COMMITS = method(thread_service_pb2, "ThreadService", "ListCommits")
_VERIFY = method(thread_service_pb2, "ThreadService", "VerifyThread")
_LIST_AUDIT = method(thread_service_pb2, "ThreadService", "ListAuditRecords")
_DECLARE_STATE = method(thread_service_pb2, "ThreadService", "DeclareStateKeys")
_LIST_STATE = method(thread_service_pb2, "ThreadService", "ListStateKeys")
_PUT = method(checkpoint_service_pb2, "CheckpointService", "PutCheckpoint")
_PUT_WRITES = method(checkpoint_service_pb2, "CheckpointService", "PutWrites")
_GET = method(checkpoint_service_pb2, "CheckpointService", "GetCheckpoint")
_LIST = method(checkpoint_service_pb2, "CheckpointService", "ListCheckpoints")
_STAGE = method(checkpoint_service_pb2, "CheckpointService", "StageChunk")
_READ = method(checkpoint_service_pb2, "CheckpointService", "ReadValue")
_DELETE_FOR_RUNS = method(checkpoint_service_pb2, "CheckpointService", "DeleteForRuns")
_COPY_THREAD = method(checkpoint_service_pb2, "CheckpointService", "CopyThread")
_PRUNE_THREAD = method(checkpoint_service_pb2, "CheckpointService", "PruneThread")
_DELETE_THREAD = method(checkpoint_service_pb2, "CheckpointService", "DeleteThread")


def commit(
    commit: commit_pb2.ThreadCommit, *, request_id: str | None = None
) -> Call[thread_service_pb2.CommitResponse]:
    """Applies one ThreadCommit; gives `receipt`, `run`, `ticket_ids` and `message_ids`. Raises LeaseLost,
    LeaseRequired, ThreadVersionConflict, SessionNotFound, MessageSourceMixed, MessageNotFound, StateKeyUndeclared,
    StateConflict, CheckpointIdOrder, CheckpointDeleted."""
    request = thread_service_pb2.CommitRequest(request_id=request_id or new_request_id(), commit=commit)
    return Call(_COMMIT, request, whole)


def view(
    session_id: str, commit_sequence: int | None = None, *, state_keys: Sequence[str] = (), page_size: int = 0
) -> PagedCall[thread_service_pb2.GetThreadViewResponse]:
    """The thread at its head or after a commit, page by page: each page has the commit, the run and the checkpoint, and
    the next of its tickets, state values and messages. Raises SessionNotFound, CommitCompacted."""
    request = thread_service_pb2.GetThreadViewRequest(
        session_id=session_id, state_keys=state_keys, page_size=page_size, **given(commit_sequence=commit_sequence)
    )
    return PagedCall(Call(_VIEW, request, whole), lambda page: [page])


def list_commits(session_id: str, *, page_size: int = 0) -> PagedCall[thread_service_pb2.Commit]:
    """The thread's commits, newest first. Raises SessionNotFound."""
    request = thread_service_pb2.ListCommitsRequest(session_id=session_id, page_size=page_size)
    return PagedCall(Call(_LIST_COMMITS, request, whole), lambda page: page.commits)


def verify(session_id: str, *, page_size: int = 0) -> PagedCall[thread_service_pb2.VerifyThreadResponse]:
    """Verifies the thread's commits against what is stored, part by part: each item says how far it has come. Raises
    SessionNotFound, AuditMismatch."""
    request = thread_service_pb2.VerifyThreadRequest(session_id=session_id, page_size=page_size)
    return PagedCall(Call(_VERIFY, request, whole), lambda page: [page])


def list_audit(
    *,
    session_id: str | None = None,
    actions: Sequence[str] = (),
    actor_id: str | None = None,
    created_from: datetime | None = None,
    created_before: datetime | None = None,
    page_size: int = 0,
) -> PagedCall[audit_pb2.AuditRecord]:
    """Audit records of the scope, newest first."""
    request = thread_service_pb2.ListAuditRecordsRequest(
        page_size=page_size,
        actions=actions,
        **given(
            session_id=session_id,
            actor_id=actor_id,
            created_from=to_timestamp(created_from),
            created_before=to_timestamp(created_before),
        ),
    )
    return PagedCall(Call(_LIST_AUDIT, request, whole), lambda page: page.records)


def declare_state_keys(
    declarations: Iterable[state_pb2.StateKeyDeclaration], *, request_id: str | None = None
) -> Call[Sequence[state_pb2.StateKey]]:
    """Declares state keys for the scope, all or none. Raises StateKeyPinned, LimitExceeded."""
    request = thread_service_pb2.DeclareStateKeysRequest(
        request_id=request_id or new_request_id(), declarations=declarations
    )
    return Call(_DECLARE_STATE, request, lambda response: response.keys)


def list_state_keys(*, page_size: int = 0) -> PagedCall[state_pb2.StateKey]:
    """The scope's state keys, by name."""
    return PagedCall(
        Call(_LIST_STATE, thread_service_pb2.ListStateKeysRequest(page_size=page_size), whole), lambda page: page.keys
    )


def put(
    session_id: str,
    put: checkpoint_pb2.CheckpointPut,
    *,
    lease: commit_pb2.Lease | None = None,
    request_id: str | None = None,
) -> Call[checkpoint_service_pb2.PutCheckpointResponse]:
    """Stores a checkpoint. Raises LeaseRequired, LeaseLost, CheckpointDeleted, CheckpointIdOrder."""
    request = checkpoint_service_pb2.PutCheckpointRequest(
        request_id=request_id or new_request_id(), session_id=session_id, put=put, **given(lease=lease)
    )
    return Call(_PUT, request, whole)


def put_writes(
    session_id: str,
    writes: checkpoint_pb2.CheckpointWrites,
    *,
    lease: commit_pb2.Lease | None = None,
    request_id: str | None = None,
) -> Call[checkpoint_service_pb2.PutWritesResponse]:
    """Stores pending writes. Raises LeaseRequired, LeaseLost, CheckpointDeleted."""
    request = checkpoint_service_pb2.PutWritesRequest(
        request_id=request_id or new_request_id(), session_id=session_id, writes=writes, **given(lease=lease)
    )
    return Call(_PUT_WRITES, request, whole)


def get(
    session_id: str, checkpoint_ns: str = "", checkpoint_id: str | None = None
) -> Call[checkpoint_service_pb2.GetCheckpointResponse]:
    """Reads a checkpoint, or the namespace's latest; gives `checkpoint` (absent: none) and `checkpoint_id_floor`."""
    request = checkpoint_service_pb2.GetCheckpointRequest(
        session_id=session_id, checkpoint_ns=checkpoint_ns, **given(checkpoint_id=checkpoint_id)
    )
    return Call(_GET, request, whole)


def list(
    *,
    session_id: str | None = None,
    checkpoint_ns: str | None = None,
    checkpoint_id: str | None = None,
    before_checkpoint_id: str | None = None,
    metadata_filter_json: str | None = None,
    limit: int | None = None,
) -> Call[checkpoint_service_pb2.ListCheckpointsResponse]:
    """Streams checkpoints, newest first, in frames. `checkpoint_ns` "" is the root graph's alone, None is all."""
    request = checkpoint_service_pb2.ListCheckpointsRequest(
        **given(
            session_id=session_id,
            checkpoint_ns=checkpoint_ns,
            checkpoint_id=checkpoint_id,
            before_checkpoint_id=before_checkpoint_id,
            metadata_filter_json=metadata_filter_json,
            limit=limit,
        )
    )
    return Call(_LIST, request, whole)


def stage_chunk(
    staged_id: str, index: int, data: bytes, *, request_id: str | None = None
) -> Call[checkpoint_service_pb2.StageChunkResponse]:
    """Stages a chunk of a value that is too large for one message; the put or commit then names the value. Raises
    LimitExceeded."""
    request = checkpoint_service_pb2.StageChunkRequest(
        request_id=request_id or new_request_id(), staged_id=staged_id, index=index, data=data
    )
    return Call(_STAGE, request, whole)


def read_value(
    session_id: str,
    checkpoint_ns: str,
    checkpoint_id: str,
    value: checkpoint_pb2.ChannelValue | checkpoint_pb2.PendingWrite,
) -> Call[checkpoint_service_pb2.ReadValueResponse]:
    """Reads a value that a reply left out (`deferred_size`), whole. Raises CheckpointValueNotFound."""
    if isinstance(value, checkpoint_pb2.ChannelValue):
        name: dict[str, Any] = {
            "channel": checkpoint_service_pb2.ChannelValueName(channel=value.channel, version=value.version)
        }
    else:
        name = {"write": checkpoint_service_pb2.PendingWriteName(task_id=value.task_id, index=value.index)}
    request = checkpoint_service_pb2.ReadValueRequest(
        session_id=session_id, checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id, **name
    )
    return Call(_READ, request, whole)


def delete_thread(
    session_id: str, *, lease: commit_pb2.Lease | None = None, request_id: str | None = None
) -> Call[checkpoint_service_pb2.DeleteThreadResponse]:
    """Deletes a thread's checkpoints and writes, and leaves the session. Raises LeaseRequired, LeaseLost."""
    request = checkpoint_service_pb2.DeleteThreadRequest(
        request_id=request_id or new_request_id(), session_id=session_id, **given(lease=lease)
    )
    return Call(_DELETE_THREAD, request, whole)


def delete_for_runs(
    run_ids: Iterable[str], *, lease: commit_pb2.Lease | None = None, request_id: str | None = None
) -> Call[checkpoint_service_pb2.DeleteForRunsResponse]:
    """Deletes the checkpoints whose metadata `run_id` is one of these, in every session of the scope; in that of the
    leased run under its lease. Raises LeaseRequired, LeaseLost, RunNotFound."""
    request = checkpoint_service_pb2.DeleteForRunsRequest(
        request_id=request_id or new_request_id(), run_ids=run_ids, **given(lease=lease)
    )
    return Call(_DELETE_FOR_RUNS, request, whole)


def copy_thread(
    source_session_id: str,
    target_session_id: str,
    *,
    lease: commit_pb2.Lease | None = None,
    request_id: str | None = None,
) -> Call[checkpoint_service_pb2.CopyThreadResponse]:
    """Copies all checkpoints and writes into a session that holds none. Raises IdTaken, LeaseRequired, LeaseLost."""
    request = checkpoint_service_pb2.CopyThreadRequest(
        request_id=request_id or new_request_id(),
        source_session_id=source_session_id,
        target_session_id=target_session_id,
        **given(lease=lease),
    )
    return Call(_COPY_THREAD, request, whole)


def prune_thread(
    session_id: str,
    strategy: checkpoint_service_pb2.PruneStrategy.ValueType = checkpoint_service_pb2.PRUNE_STRATEGY_KEEP_LATEST,
    *,
    lease: commit_pb2.Lease | None = None,
    request_id: str | None = None,
) -> Call[checkpoint_service_pb2.PruneThreadResponse]:
    """Deletes checkpoints that a thread no longer needs; what is deleted does not come back. Raises LeaseRequired,
    LeaseLost."""
    request = checkpoint_service_pb2.PruneThreadRequest(
        request_id=request_id or new_request_id(), session_id=session_id, strategy=strategy, **given(lease=lease)
    )
    return Call(_PRUNE_THREAD, request, whole)
