"""Rows that are edited behind the server's back: the chain names the first commit that does not match (R17)."""

from typing import Any

import grpc
import pytest

from tests.store.runtime_pipeline.gate import connection
from tests.support.calls import refusing
from tests.support.chains import Life, commits, verified, whole_life
from tests.support.runtime import Runtime, event
from tests.support.suite import Suite
from threadkeep_chassis.scope import Scope
from threadkeep_runtime.domain.values import thread_key_of

pytestmark = pytest.mark.suite(backends=["sqlite", "postgres"], services=["config", "runtime"], topologies=["embedded"])

# Table, what is set, which of the thread's rows, and the commit that no longer matches (of `whole_life`).
EDITS = [
    ("events", "payload = NULL", "type = 'order.placed'", 3),
    ("events", "visibility = 1", "type = 'bare'", 3),
    ("events", "type = 'order.lost'", "type = 'order.placed'", 3),
    ("events", "run_id = NULL", "type = 'bare'", 3),
    ("messages", "content = 'x'", "message_id = 'm-3'", 3),
    ("messages", "message_id = 'm-9'", "message_id = 'm-3'", 3),
    ("messages", "to_commit = NULL", "message_id = 'm-1'", 4),
    ("messages", "is_removed = false", "message_id = 'm-1'", 4),
    ("messages", "content = 'x'", "message_id = 'm-2' AND from_commit = 4", 4),
    ("state_values", "value = '2'", "commit_sequence = 3", 3),
    ("state_values", "actor_id = 'mallory'", "commit_sequence = 3", 3),
    ("state_values", "value = '2'", "commit_sequence = 4", 4),
    ("tickets", "prompt = NULL", "true", 4),
    ("tickets", "value_json = '1'", "true", 5),
    ("audit_records", "target = 'order 8'", "true", 3),
    ("audit_records", "actor_id = 'mallory'", "true", 3),
    ("outbox", "payload = NULL", "true", 3),
    ("outbox", "target = 'elsewhere'", "true", 3),
    ("checkpoints", "metadata_bytes = '{}'", "true", 3),
    ("checkpoints", "checkpoint_bytes = NULL", "true", 3),
    ("checkpoint_blobs", "blob = 'x'", "channel = 'c'", 3),
    ("checkpoint_blobs", "blob = 'x'", "channel = 'whole'", 3),
    ("checkpoint_writes", "channel = 'other'", "idx = 0", 3),
    ("checkpoint_writes", "blob = 'x'", "idx = -1", 3),
    ("commits", "kind = 'other'", "sequence = 2", 2),
    ("commits", "actor_id = 'mallory'", "sequence = 3", 3),
    ("commits", "parts = '[]'", "sequence = 3", 3),
    ("commits", "open_run = '{}'", "sequence = 4", 4),
    ("commits", "digest = 'x'", "sequence = 6", 6),
    ("commits", "request_id = NULL", "sequence = 1", 1),
    ("threads", "digest = 'x'", "true", 7),
    ("threads", "chain_anchor = 'x'", "true", 1),
]


class Vandal:
    """Somebody with the database's password."""

    def __init__(self, owner: Any, backend: str, thread_key: str) -> None:
        self.owner, self.backend, self.thread_key = owner, backend, thread_key

    def where(self, table: str) -> str:
        column = "thread_id" if table.startswith("checkpoint") else "thread_key"
        return f"{column} = '{self.thread_key}'"

    async def run(self, statement: str) -> None:
        await self.owner.execute(statement)

    async def swap(self, table: str, change: str, which: str) -> str:
        """Makes a change; gives the statement that takes it back."""
        column = change.split(" = ")[0]
        backup = f"backup_{table}_{column}"
        await self.run(f"DROP TABLE IF EXISTS {backup}")
        rows = f"{self.where(table)} AND {which}"
        await self.run(f"CREATE TABLE {backup} AS SELECT {column} AS old FROM {table} WHERE {rows}")
        if self.backend == "postgres" and any(change.startswith(one) for one in _BYTES):
            change = change.replace("'x'", "'x'::bytea").replace("'2'", "'2'::bytea").replace("'{}'", "'{}'::bytea")
        await self.run(f"UPDATE {table} SET {change} WHERE {rows}")
        after = change.split(" = ", 1)[1]
        found = rows if column not in which else f"{self.where(table)} AND {column} = {after}"
        return f"UPDATE {table} SET {column} = (SELECT old FROM {backup}) WHERE {found}"


_BYTES = ("payload", "content", "value =", "prompt", "blob", "metadata_bytes", "checkpoint_bytes", "digest", "chain_")


async def mismatch(runtime: Runtime, life: Life) -> dict[str, str]:
    """Verification must fail; what it says."""
    with refusing(grpc.StatusCode.DATA_LOSS, "AUDIT_MISMATCH") as error:
        await verified(runtime, life.session_id, page_size=3)
    return error.metadata


@pytest.mark.rule("R17")
async def test_every_edit_of_a_row_is_found_and_its_commit_named(suite: Suite) -> None:
    runtime = Runtime(suite)
    life = await whole_life(runtime)
    assert life.last.commit_sequence == 7
    key = thread_key_of(Scope(runtime.world.values).key, life.session_id)
    async with connection(suite) as owner:
        vandal = Vandal(owner, suite.backend, key)
        for table, change, which, commit in EDITS:
            undo = await vandal.swap(table, change, which)
            found = await mismatch(runtime, life)
            assert found["commit_sequence"] == str(commit), (table, change, which, found)
            await vandal.run(undo)
            assert (await verified(runtime, life.session_id))[-1].digest == life.last.digest, (table, change)


@pytest.mark.rule("R17")
async def test_what_is_purged_verifies_and_a_commit_that_is_taken_out_does_not(suite: Suite) -> None:
    runtime = Runtime(suite)
    life = await whole_life(runtime)
    key = thread_key_of(Scope(runtime.world.values).key, life.session_id)
    (whole,) = await verified(runtime, life.session_id)
    async with connection(suite) as owner:
        for table in ("events", "messages", "state_values", "audit_records", "outbox", "checkpoints"):
            column = "thread_id" if table == "checkpoints" else "thread_key"
            await owner.execute(f"DELETE FROM {table} WHERE {column} = '{key}'")
            (page,) = await verified(runtime, life.session_id)
            assert page.digest == whole.digest
            assert page.present_parts + page.purged_parts == whole.present_parts
        assert page.purged_parts > 10
        digests = {one.commit_sequence: one.digest.hex() for one in await commits(runtime, life.session_id)}
        # Purged commits leave the digest where the chain starts.
        blob = "'\\x{}'::bytea" if suite.backend == "postgres" else "x'{}'"
        await owner.execute(f"DELETE FROM commits WHERE thread_key = '{key}' AND sequence <= 3")
        assert (await mismatch(runtime, life))["commit_sequence"] == "1"
        anchor = blob.format(digests[3])
        await owner.execute(f"UPDATE threads SET chain_start = 3, chain_anchor = {anchor} WHERE thread_key = '{key}'")
        (page,) = await verified(runtime, life.session_id)
        assert (page.first_commit, page.digest) == (4, whole.digest)
        anchor = blob.format(digests[2])
        await owner.execute(f"UPDATE threads SET chain_anchor = {anchor} WHERE thread_key = '{key}'")
        assert (await mismatch(runtime, life))["commit_sequence"] == "4"
        anchor = blob.format(digests[3])
        await owner.execute(f"UPDATE threads SET chain_anchor = {anchor} WHERE thread_key = '{key}'")
        await owner.execute(f"DELETE FROM commits WHERE thread_key = '{key}' AND sequence = 5")
        assert (await mismatch(runtime, life))["commit_sequence"] == "5"
        await owner.execute(f"DELETE FROM commits WHERE thread_key = '{key}' AND sequence > 4")
        assert (await mismatch(runtime, life))["commit_sequence"] == "5"


@pytest.mark.rule("R17", "X12")
async def test_a_thread_from_before_the_chain_starts_one_with_its_next_commit(suite: Suite) -> None:
    runtime = Runtime(suite)
    name = (await runtime.create()).session_id
    await runtime.commit(name, events=[event()])
    key = thread_key_of(Scope(runtime.world.values).key, name)
    async with connection(suite) as owner:
        # As a server wrote them that knew no chain.
        await owner.execute(
            f"UPDATE commits SET parts = NULL, digest = NULL, open_run = NULL WHERE thread_key = '{key}'"
        )
        await owner.execute(f"UPDATE threads SET digest = NULL, digest_sequence = 0 WHERE thread_key = '{key}'")
    (page,) = await verified(runtime, name)
    assert (page.first_commit, page.last_commit, page.digest) == (0, 0, b"")
    (view,) = await runtime.view(name)
    assert view.commit_sequence == 2
    third = await runtime.commit(name, events=[event()])
    (page,) = await verified(runtime, name)
    assert (page.first_commit, page.last_commit, page.digest) == (3, 3, third.receipt.digest)
    assert [bool(one.digest) for one in await commits(runtime, name)] == [True, False, False]
    with refusing(grpc.StatusCode.OUT_OF_RANGE, "COMMIT_COMPACTED") as error:
        await runtime.view(name, 2)
    assert error.metadata["oldest_commit"] == "3"
    async with connection(suite) as owner:
        # An older server commits once more, during an upgrade.
        await owner.execute(f"UPDATE commits SET digest = NULL WHERE thread_key = '{key}' AND sequence = 3")
        await owner.execute(f"UPDATE threads SET digest_sequence = 2 WHERE thread_key = '{key}'")
    fourth = await runtime.commit(name, events=[event()])
    (page,) = await verified(runtime, name)
    assert (page.first_commit, page.digest) == (4, fourth.receipt.digest)
