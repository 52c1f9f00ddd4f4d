"""A snapshot is of one revision, though no transaction spans it."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.support.config import config_database
from tests.support.databases import Databases
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.migrations import prepare
from threadkeep_chassis.scope import Drain
from threadkeep_chassis.signals import LocalSignals
from threadkeep_config import watch as watching
from threadkeep_config.domain import writes
from threadkeep_config.domain.values import API, Content, EntityType, Key
from threadkeep_config.domain.views import View
from threadkeep_config.server import MIGRATIONS
from threadkeep_config.store import entities
from threadkeep_config.store.tail import Tail
from threadkeep_config.watch import ALL, FrameKind, Watched, Watches

SCOPE_KEY = "k" * 64


async def put(database: Database, name: str, text: str | None) -> None:
    """Puts a tool, or deletes it."""
    key = Key(EntityType.TOOL, name, SCOPE_KEY)

    async def work(connection: Connection) -> None:
        current = await entities.lock_or_make(connection, key, "{}")
        if text is None:
            change = writes.delete(current, None)
        else:
            definition = f'{{"tool":{{"description":"{text}"}}}}'
            made = writes.put(current, Content(API, definition, text), None)
            assert made is not None
            change = made
        await entities.write(connection, [change])

    await database.retrying(work)


@pytest.mark.rule("C6")
async def test_a_snapshot_that_is_read_slowly_is_of_the_revision_that_it_names(
    databases: Databases, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its pages every entity changes, some go and some come; the snapshot shows none of it, the log all."""
    monkeypatch.setattr(watching, "PAGE_CHANGES", 2)
    url = await config_database(databases, backend)
    database = await Database.open(url, "config")
    try:
        await prepare(database, MIGRATIONS)
        signals = LocalSignals()
        tail = Tail(database, signals)
        for name in "bdfhj":
            await put(database, name, f"{name} then")
        await put(database, "gone", "x")
        await put(database, "gone", None)
        await tail.start()
        watches = Watches(
            database,
            tail,
            Limits(),
            CollectorRegistry(),
            bookmark_seconds=30,
            buffer_changes=100,
            buffer_bytes=10**6,
        )
        frames = watches.watch(Watched(View(None), (ALL,)), None, Drain())
        snapshot: dict[str, str] = {}
        steps = iter([("d", "changed"), ("f", None), ("a", "new"), ("h", None), ("i", "new"), ("j", "changed")])
        changed = 0
        while True:
            frame = await asyncio.wait_for(anext(frames), 20)
            if frame.kind is FrameKind.SYNCED:
                break
            for logged, _ in frame.changes:
                snapshot[logged.entity.key.name] = logged.entity.content.digest
            for name, text in list(steps)[:6] if changed == 0 else []:
                await put(database, name, text)
                changed += 1
        assert changed == 6
        assert snapshot == {name: f"{name} then" for name in "bdfhj"}
        assert frame.revision == 7
        await tail.advance()
        told: list[Any] = []
        while len(told) < 6:
            frame = await asyncio.wait_for(anext(frames), 20)
            told.extend(
                (logged.entity.key.name, logged.entity.deleted, logged.entity.revision) for logged, _ in frame.changes
            )
        await frames.aclose()
        assert told == [
            ("d", False, 8),
            ("f", True, 9),
            ("a", False, 10),
            ("h", True, 11),
            ("i", False, 12),
            ("j", False, 13),
        ]
    finally:
        await database.close()
        await databases.drop(url)
