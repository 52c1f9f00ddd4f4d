"""Messages that commits sent, and the lines in which they wait for their targets (R16)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp, partial_index
from threadkeep_runtime.tables.schema import metadata, one_of

DELIVERY_STATES = ("PENDING", "DELIVERED", "DEAD")
TARGET_KINDS = ("SESSION", "WEBHOOK")

outbox = sa.Table(
    "outbox",
    metadata,
    # The thread that sent it.
    sa.Column("thread_key", Key(), sa.ForeignKey("threads.thread_key"), primary_key=True),
    sa.Column("message_id", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("commit_sequence", sa.BigInteger, nullable=False),
    sa.Column("run_id", Key()),
    sa.Column("task_id", Key()),
    sa.Column("kind", sa.Text, nullable=False),
    # A session id of the same scope, or a URL.
    sa.Column("target", sa.Text, nullable=False),
    # Name of the secret that signs.
    sa.Column("secret", Key()),
    # First 40 hex digits of SHA-256(scope_key + NUL + kind + NUL + target): the line.
    sa.Column("target_key", Key(), nullable=False),
    # Place in the line, from its counter; a requeued message gets a new one.
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("type", Key(), nullable=False),
    # A serialized Payload message.
    sa.Column("payload", Bytes()),
    sa.Column("payload_size", sa.BigInteger, nullable=False),
    # A serialized TaskOnArrival message.
    sa.Column("arrival", Bytes()),
    sa.Column("dedupe_key", Key()),
    # SHA-256 of what the dedupe key stands for.
    sa.Column("fingerprint", Bytes(), nullable=False),
    sa.Column("correlation_id", Key()),
    # The webhook of its task that it tells.
    sa.Column("webhook_id", Key()),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("last_error", sa.Text, nullable=False),
    sa.Column("last_status", sa.Integer, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("last_attempt_time", UtcTimestamp()),
    # When it was delivered or became a dead letter.
    sa.Column("settle_time", UtcTimestamp()),
    one_of("state", DELIVERY_STATES),
    one_of("kind", TARGET_KINDS),
    sa.CheckConstraint("(state = 'PENDING') = (settle_time IS NULL)", name="settled_when_not_pending"),
    sa.UniqueConstraint("scope_key", "message_id"),
    sa.Index(None, "scope_key", "create_time", "message_id"),
    sa.Index(None, "thread_key", "create_time", "message_id"),
)
partial_index(
    "outbox_deduped",
    outbox.c.target_key,
    outbox.c.dedupe_key,
    where=outbox.c.dedupe_key.is_not(None),
    unique=True,
)
partial_index(
    "outbox_pending", outbox.c.target_key, outbox.c.sequence, where=outbox.c.state == sa.text("'PENDING'"), unique=True
)
partial_index(
    "outbox_dead",
    outbox.c.scope_key,
    outbox.c.create_time,
    outbox.c.message_id,
    where=outbox.c.state == sa.text("'DEAD'"),
)
partial_index("outbox_delivered", outbox.c.settle_time, where=outbox.c.state == sa.text("'DELIVERED'"))

# One row per target that was sent to, until it has been idle for long. A commit that sends locks it behind its threads
# and before the log's counter; a relay that claimed it delivers its messages one after the other.
outbox_lines = sa.Table(
    "outbox_lines",
    metadata,
    sa.Column("target_key", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    # The last place that was given.
    sa.Column("sequence", sa.BigInteger, nullable=False),
    # How many messages wait; at most so many: deleted threads take theirs along.
    sa.Column("pending", sa.BigInteger, nullable=False),
    # When the first message may be tried; NULL: none waits.
    sa.Column("due_time", UtcTimestamp()),
    # Grows with every claim: a relay that lost its claim can't settle (R16).
    sa.Column("epoch", sa.BigInteger, nullable=False),
    # Until when a relay has it.
    sa.Column("claim_time", UtcTimestamp()),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    sa.CheckConstraint("pending >= 0", name="pending_not_negative"),
)
partial_index("outbox_lines_due", outbox_lines.c.due_time, where=outbox_lines.c.due_time.is_not(None))
partial_index("outbox_lines_idle", outbox_lines.c.update_time, where=outbox_lines.c.due_time.is_(None))
