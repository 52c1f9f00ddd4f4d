"""The composition root of the config service."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from threadkeep.config.v1 import config_service_pb2_grpc
from threadkeep_chassis.database import Database, DatabaseUrl
from threadkeep_chassis.hosting import Service, Surroundings
from threadkeep_chassis.limits import Limit, Limits
from threadkeep_chassis.loops import Loops
from threadkeep_chassis.meta import load_token_secret
from threadkeep_chassis.migrations import MigrationSet, prepare
from threadkeep_chassis.paging import Pager
from threadkeep_chassis.receipts import purge_receipts
from threadkeep_chassis.signals import signals_for
from threadkeep_config.commands import Commands
from threadkeep_config.compaction import Compaction
from threadkeep_config.domain.resolution import Precedence
from threadkeep_config.service.servicer import ConfigServicer
from threadkeep_config.settings import ConfigSettings
from threadkeep_config.store.cache import Cache
from threadkeep_config.store.resolver import Resolver
from threadkeep_config.store.scopes import Views
from threadkeep_config.store.tail import Tail
from threadkeep_config.watch import Watches

MIGRATIONS = MigrationSet("config", "threadkeep_config")

PURGE_SECONDS = 600.0

OWN_LIMITS = (
    Limit("max_definition_bytes", 2 * 1024 * 1024, "Move what is large into an artifact or a file that a tool reads."),
    Limit(
        "max_manifest_bytes", 8 * 1024 * 1024, "Name fewer skills and tools, or move files of skills into artifacts."
    ),
    Limit("max_manifest_agents", 64, "Name fewer sub-agents; one that several name counts each time."),
)


def build(settings: ConfigSettings) -> Service:
    """The service, ready to be hosted."""
    servicer = ConfigServicer()
    limits = Limits(*OWN_LIMITS, values=settings.limits)
    state: dict[str, Any] = {}

    async def start(around: Surroundings) -> None:
        database = state["database"] = await Database.open(
            settings.database_url, "config", settings=settings.database_settings()
        )
        await prepare(database, MIGRATIONS)
        around.health.follow("config", database)
        secret = await load_token_secret(database)
        signals = state["signals"] = signals_for(
            database, direct_url=settings.database_direct_url, poll_seconds=settings.signal_poll_seconds
        )
        await signals.start()

        tail = state["tail"] = Tail(database, signals)
        await tail.start()
        resolver = state["resolver"] = Resolver(database, tail, Cache(settings.resolution_cache_bytes))
        watches = Watches(
            database,
            tail,
            limits,
            around.registry,
            bookmark_seconds=settings.bookmark_seconds,
            buffer_changes=settings.watch_buffer_changes,
            buffer_bytes=settings.watch_buffer_bytes,
        )
        views = Views(Precedence(settings.scope_key_precedence))
        servicer.commands = Commands(database, signals, views, resolver, limits)
        servicer.watches = watches
        servicer.pager = Pager(secret, max_size=limits["max_page_size"])
        servicer.limits = limits

        loops = state["loops"] = Loops()
        loops.add("config tail", tail.follow)
        loops.add("config resolver", resolver.run)
        receipt_ttl = timedelta(seconds=settings.receipt_ttl_seconds)
        loops.every("config receipts", PURGE_SECONDS, lambda: purge_receipts(database, older_than=receipt_ttl))
        compaction = Compaction(database, retention_seconds=settings.history_retention_seconds)
        loops.every("config compaction", settings.compaction_interval_seconds, compaction.run_once)
        await loops.start()

    async def stop() -> None:
        for part in ("resolver", "tail"):
            if part in state:
                state[part].close()
        for part, close in (("loops", "stop"), ("signals", "close"), ("database", "close")):
            if part in state:
                await getattr(state[part], close)()

    return Service(
        "config",
        ["threadkeep.config.v1.ConfigService"],
        register=lambda server: config_service_pb2_grpc.add_ConfigServiceServicer_to_server(servicer, server),
        start=start,
        stop=stop,
        backend=DatabaseUrl.parse(settings.database_url).backend,
        limits=limits,
    )
