"""The composition root of the runtime: settings in, a Service out. Nothing is opened before the host starts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import grpc

from threadkeep.runtime.v1 import (
    checkpoint_service_pb2_grpc,
    event_pb2,
    event_service_pb2_grpc,
    outbox_service_pb2_grpc,
    retention_service_pb2_grpc,
    run_service_pb2_grpc,
    schedule_service_pb2_grpc,
    session_service_pb2_grpc,
    store_service_pb2_grpc,
    task_service_pb2_grpc,
    thread_service_pb2_grpc,
    ticket_service_pb2_grpc,
    worker_service_pb2_grpc,
)
from threadkeep_chassis.clock import Clock, SystemClock
from threadkeep_chassis.database import Database, DatabaseUrl
from threadkeep_chassis.hosting import Service, Surroundings
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.loops import Loops
from threadkeep_chassis.meta import load_token_secret
from threadkeep_chassis.migrations import MigrationSet, check_version, prepare
from threadkeep_chassis.paging import Pager
from threadkeep_chassis.peers import Peers
from threadkeep_chassis.signals import signals_for
from threadkeep_runtime.commands import Commands, QueuePlaces
from threadkeep_runtime.commands.deletions import Sweeper
from threadkeep_runtime.commands.retention import PurgeMetrics, Purger
from threadkeep_runtime.commands.schedules import FireMetrics, Firing
from threadkeep_runtime.feeds.feeds import Feeds
from threadkeep_runtime.feeds.metrics import FeedMetrics
from threadkeep_runtime.feeds.replicas import join_replicas
from threadkeep_runtime.loops.posting import Poster
from threadkeep_runtime.loops.recovery import Recovery
from threadkeep_runtime.loops.relay import Relay, RelayMetrics
from threadkeep_runtime.loops.retention import Retention
from threadkeep_runtime.loops.schedules import Schedules
from threadkeep_runtime.loops.sweeping import sweep_chunks, sweep_items
from threadkeep_runtime.peers import ConfigPeer
from threadkeep_runtime.pipeline import Failpoints, Pipeline, PipelineMetrics, PipelineSettings
from threadkeep_runtime.service.answers import bounded, check_answer
from threadkeep_runtime.service.checkpoint_service import CheckpointServicer
from threadkeep_runtime.service.event_service import EventServicer
from threadkeep_runtime.service.outbox_convert import arrival_reader
from threadkeep_runtime.service.outbox_service import OutboxServicer
from threadkeep_runtime.service.render import Receipts
from threadkeep_runtime.service.retention_service import RetentionServicer
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.service.run_service import RunServicer
from threadkeep_runtime.service.schedule_service import ScheduleServicer, submitter
from threadkeep_runtime.service.session_service import SessionServicer
from threadkeep_runtime.service.state_convert import check_state
from threadkeep_runtime.service.store_service import StoreServicer
from threadkeep_runtime.service.task_service import TaskServicer
from threadkeep_runtime.service.thread_service import ThreadServicer
from threadkeep_runtime.service.ticket_service import TicketServicer
from threadkeep_runtime.service.worker_service import WorkerServicer
from threadkeep_runtime.settings import LIMITS, RuntimeSettings
from threadkeep_runtime.store.events_read import log_head
from threadkeep_runtime.store.incarnation import set_incarnation

MIGRATIONS = MigrationSet("runtime", "threadkeep_runtime")

PURGE_SECONDS = 600.0

_SERVICES = (
    "Checkpoint", "Event", "Outbox", "Retention", "Run", "Schedule", "Session", "Store", "Task", "Thread", "Ticket",
    "Worker",
)  # fmt: skip


async def renew_log(url: str) -> str:
    """Gives the event log a new incarnation, after its database was restored to an earlier point; returns it (R14).

    Every cursor that was given before is CURSOR_UNKNOWN then, and whoever follows begins anew. On PostgreSQL it may be
    in use. Raises DataOwned, SchemaOutOfRange, Unavailable.
    """
    database = await Database.open(DatabaseUrl.parse(url), "runtime", purpose="threadkeep renew-log")
    try:
        await check_version(database, MIGRATIONS)
        incarnation = new_id()
        await database.retrying(lambda connection: connection.run(lambda sync: set_incarnation(sync, incarnation)))
        return incarnation
    finally:
        await database.close()


def build(settings: RuntimeSettings, *, clock: Clock | None = None) -> Service:
    """The runtime. Raises DatabaseUrlInvalid, and ValueError for a limit or failpoint that does not exist."""
    url = DatabaseUrl.parse(settings.database_url)
    limits = Limits(*LIMITS, values=settings.limits)
    failpoints = Failpoints(settings.failpoint)
    loops = Loops()
    closing: list[Callable[[], Awaitable[None]]] = []
    checkpoints, events, worker = CheckpointServicer(), EventServicer(), WorkerServicer()
    runs, sessions, tasks = RunServicer(), SessionServicer(), TaskServicer()
    retention = RetentionServicer()
    store, threads, tickets = StoreServicer(), ThreadServicer(), TicketServicer()
    outbox, webhooks = OutboxServicer(), settings.outbox.rules()
    schedules = ScheduleServicer()

    def register(server: grpc.aio.Server) -> None:
        checkpoint_service_pb2_grpc.add_CheckpointServiceServicer_to_server(checkpoints, server)
        event_service_pb2_grpc.add_EventServiceServicer_to_server(events, server)
        retention_service_pb2_grpc.add_RetentionServiceServicer_to_server(retention, server)
        outbox_service_pb2_grpc.add_OutboxServiceServicer_to_server(outbox, server)
        run_service_pb2_grpc.add_RunServiceServicer_to_server(runs, server)
        schedule_service_pb2_grpc.add_ScheduleServiceServicer_to_server(schedules, server)
        session_service_pb2_grpc.add_SessionServiceServicer_to_server(sessions, server)
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(store, server)
        task_service_pb2_grpc.add_TaskServiceServicer_to_server(tasks, server)
        thread_service_pb2_grpc.add_ThreadServiceServicer_to_server(threads, server)
        ticket_service_pb2_grpc.add_TicketServiceServicer_to_server(tickets, server)
        worker_service_pb2_grpc.add_WorkerServiceServicer_to_server(worker, server)

    async def start(around: Surroundings) -> None:
        database = await Database.open(
            url,
            "runtime",
            settings=settings.database_settings(),
            clock=clock or SystemClock(),
            purpose="threadkeep runtime",
        )
        closing.append(database.close)
        await prepare(database, MIGRATIONS)
        around.health.follow("runtime", database)
        secret = await load_token_secret(database)
        async with database.read() as connection:
            partitions = len((await connection.run(log_head)).positions)
        signals = signals_for(
            database, direct_url=settings.database_direct_url, poll_seconds=settings.signal_poll_seconds
        )
        await signals.start()
        closing.append(signals.close)
        peers = Peers(around.addresses, max_message_bytes=settings.max_message_bytes)
        closing.append(peers.close)

        pipeline = Pipeline(
            database,
            signals,
            partitions,
            new_id,
            PipelineMetrics(around.registry),
            PipelineSettings(
                corridors=settings.pipeline_corridors,
                max_batch_commits=settings.max_batch_commits,
                max_batch_bytes=settings.max_batch_bytes,
                max_pending_commits=limits["max_pending_commits"],
                max_waiting_workers=limits["max_waiting_workers"],
                poll_seconds=settings.signal_poll_seconds,
            ),
            failpoints,
        )
        await pipeline.start(loops)
        closing.append(loops.stop)
        closing.append(pipeline.close)
        feeds = Feeds(
            database,
            signals,
            secret,
            partitions,
            limits=limits,
            settings=settings.feeds,
            metrics=FeedMetrics(around.registry),
        )
        closing.append(feeds.close)
        bus = join_replicas(
            feeds,
            database,
            event_pb2.LiveObservation.FromString,
            direct_url=settings.database_direct_url,
            registry=around.registry,
        )
        if bus is not None:
            await bus.start()
            closing.append(bus.close)

        pager = Pager(secret, max_size=limits["max_page_size"])
        places = QueuePlaces(database, limits["max_queued_tasks"], settings.queue_limits)
        sweeper = Sweeper(database, failpoints, settings.sweep_rows)
        steps = limits["max_schema_steps"]
        checks = bounded(check_answer, steps), bounded(check_state, steps)
        commands = Commands(database, pipeline, ConfigPeer(peers), signals, checks[0], places, checks[1], sweeper)
        rooms = Rooms(database, commands, pipeline, pager, Receipts(secret), limits, settings, webhooks)
        purger = Purger(
            database,
            pipeline,
            sweeper,
            settings.receipt_ttl_seconds,
            settings.outbox.delivered_ttl_seconds,
            PurgeMetrics(around.registry),
        )
        retention.purger = purger
        for servicer in (
            checkpoints, outbox, retention, runs, schedules, sessions, store, tasks, threads, tickets, worker,
        ):  # fmt: skip
            servicer.rooms = rooms
        events.feeds, events.pager = feeds, pager
        outbox.signals = signals
        worker.database, worker.feeds = database, feeds

        recovery = Recovery(database, pipeline)
        loops.every("recovery", settings.recovery_interval_seconds, recovery.run_once)
        firing = Firing(database, submitter(rooms), settings.schedule_grace_seconds, FireMetrics(around.registry))
        loops.every("schedules", settings.schedule_interval_seconds, Schedules(database, firing).run_once)
        loops.every("receipts", PURGE_SECONDS, purger.purge_receipts)
        loops.every("retention", settings.retention_interval_seconds, Retention(database, purger).run_once)
        poster = Poster(
            webhooks, seconds=settings.outbox.webhook_timeout_seconds, ca_file=settings.outbox.webhook_ca_file
        )
        # Closed behind the loops that use it.
        closing.insert(closing.index(loops.stop), poster.close)
        relay = Relay(
            database,
            signals,
            commands,
            poster,
            arrival_reader(new_id, limits, settings.max_attempts),
            settings.outbox,
            RelayMetrics(around.registry),
            failpoints,
            loops,
        )
        loops.add("outbox", relay.run)
        loops.every("outbox_purge", PURGE_SECONDS, purger.purge_delivered)
        loops.every("deletions", settings.sweep_interval_seconds, sweeper.sweep_all)
        loops.every("store_sweep", settings.store_sweep_interval_seconds, lambda: sweep_items(database))
        staged_ttl = timedelta(seconds=settings.staged_value_ttl_seconds)
        loops.every("staged_sweep", settings.staged_sweep_interval_seconds, lambda: sweep_chunks(database, staged_ttl))
        await loops.start()

    async def stop() -> None:
        # Last opened, first closed: the pipeline finishes what waits while the database is still there.
        while closing:
            await closing.pop()()

    return Service(
        name="runtime",
        grpc_services=[f"threadkeep.runtime.v1.{name}Service" for name in _SERVICES],
        register=register,
        start=start,
        stop=stop,
        backend=url.backend,
        limits=limits,
        capabilities=["langgraph.checkpoints", "langgraph.store"],
    )
