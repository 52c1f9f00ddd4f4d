"""Today's tables of the runtime (R1, R2, R14, R20); `migrations/` says how they came to be.

Every table that a thread owns is keyed by the thread's key first. Columns that every commit changes carry no index, so
that such updates stay within the row's page (HOT). Enums are short text. LangGraph's three tables have its saver's
layout.
"""

from threadkeep_runtime.tables.audit import audit_records
from threadkeep_runtime.tables.checkpoints import (
    checkpoint_blobs,
    checkpoint_migrations,
    checkpoint_writes,
    checkpoints,
    staged_chunks,
)
from threadkeep_runtime.tables.log import commits, events, log_floors, log_partitions
from threadkeep_runtime.tables.messages import message_calls, message_places, messages
from threadkeep_runtime.tables.outbox import outbox, outbox_lines
from threadkeep_runtime.tables.retention import loop_owners, retention_policies
from threadkeep_runtime.tables.schedules import schedules
from threadkeep_runtime.tables.schema import OUTLIVES_THREAD, metadata
from threadkeep_runtime.tables.shared import manifests, meta, receipts, scopes
from threadkeep_runtime.tables.state import state_key_counters, state_keys, state_values
from threadkeep_runtime.tables.store import store_counters, store_items
from threadkeep_runtime.tables.threads import session_metadata, threads, tombstones
from threadkeep_runtime.tables.work import RUN_STATES, TASK_STATES, TICKET_STATES, leases, runs, tasks, tickets

__all__ = [
    "OUTLIVES_THREAD",
    "RUN_STATES",
    "TASK_STATES",
    "TICKET_STATES",
    "audit_records",
    "checkpoint_blobs",
    "checkpoint_migrations",
    "checkpoint_writes",
    "checkpoints",
    "commits",
    "events",
    "leases",
    "log_floors",
    "log_partitions",
    "loop_owners",
    "manifests",
    "message_calls",
    "message_places",
    "messages",
    "meta",
    "metadata",
    "outbox",
    "outbox_lines",
    "receipts",
    "retention_policies",
    "runs",
    "schedules",
    "scopes",
    "session_metadata",
    "staged_chunks",
    "state_key_counters",
    "state_keys",
    "state_values",
    "store_counters",
    "store_items",
    "tasks",
    "threads",
    "tickets",
    "tombstones",
]
