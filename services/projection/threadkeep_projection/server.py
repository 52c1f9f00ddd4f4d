"""The composition root of the projection service: settings in, a Service out."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import grpc
from pydantic import Field

from threadkeep.projection.v1 import (
    admin_service_pb2_grpc,
    message_service_pb2_grpc,
    stream_service_pb2_grpc,
    summary_service_pb2_grpc,
)
from threadkeep_chassis.clock import Clock, SystemClock
from threadkeep_chassis.database import Database, DatabaseUrl
from threadkeep_chassis.hosting import Service, Surroundings, check_listen_address
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.loops import Loops
from threadkeep_chassis.meta import load_token_secret
from threadkeep_chassis.migrations import MigrationSet, prepare
from threadkeep_chassis.paging import Pager
from threadkeep_chassis.peers import Peers
from threadkeep_chassis.receipts import purge_receipts
from threadkeep_chassis.settings import ServerSettings
from threadkeep_chassis.signals import signals_for
from threadkeep_projection.commands.channels import Channels
from threadkeep_projection.commands.following import Following
from threadkeep_projection.commands.freshness import Freshness
from threadkeep_projection.commands.reading import Reading
from threadkeep_projection.commands.rebuilding import Rebuilding
from threadkeep_projection.commands.streaming import Streaming
from threadkeep_projection.follower import Follower
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import Runtime
from threadkeep_projection.service.admin import ProjectionAdminService
from threadkeep_projection.service.messages import MessageService
from threadkeep_projection.service.rooms import Rooms
from threadkeep_projection.service.streams import StreamService
from threadkeep_projection.service.summaries import SummaryService
from threadkeep_projection.transports import a2a
from threadkeep_projection.transports.a2a.http import CardsOverHttp
from threadkeep_projection.transports.a2a.service import A2AService
from threadkeep_projection.transports.a2a.wiring import a2a_rooms, add_a2a
from threadkeep_projection.transports.sse.endpoint import Events
from threadkeep_projection.transports.sse.listener import Listener, application
from threadkeep_projection.transports.sse.requests import Requests

MIGRATIONS = MigrationSet("projection", "threadkeep_projection")

GRPC_SERVICES = (
    "threadkeep.projection.v1.MessageService",
    "threadkeep.projection.v1.SummaryService",
    "threadkeep.projection.v1.StreamService",
    "threadkeep.projection.v1.ProjectionAdminService",
    a2a.SERVICE,
)


class Settings(ServerSettings):
    """What the projection service can be told. Durations in seconds."""

    projection_lease_ttl_seconds: float = Field(
        10.0, gt=0, description="How long the log is left alone after a replica that followed it went silent."
    )
    projection_batch_events: int = Field(512, ge=1, description="Events that one transaction applies at most, or so.")
    a2a_address: str | None = Field(
        None, description="Where A2A clients reach this server, as agent cards say. Default: where it listens."
    )
    stream_patience_seconds: float = Field(
        30.0, gt=0, description="How long one frame may wait for its reader before the stream ends with SLOW_CONSUMER."
    )
    http_listen: str | None = Field(
        None,
        description="Where sessions are served as Server-Sent Events over HTTP: host:port or unix:/path. Loopback.",
    )
    http_allowed_origins: list[str] = Field(
        [], description="Origins whose pages may read over HTTP, such as http://localhost:3000."
    )
    http_allowed_hosts: list[str] = Field(
        [], description="Names beside those of the loopback that HTTP requests may be addressed to."
    )
    stream_heartbeat_seconds: float = Field(
        15.0, gt=0, description="How soon a reader of Server-Sent Events to whom nothing is sent gets a comment."
    )
    stream_retry_seconds: float = Field(
        1.0, gt=0, description="How long readers of Server-Sent Events are told to wait before they come back."
    )
    projection_fetches_at_once: int = Field(16, ge=1, description="Checkpoints that are read at the same time.")


def build(settings: Settings, *, clock: Clock | None = None) -> Service:
    """The projection service. Nothing is opened before the host starts it. Raises DatabaseUrlInvalid, ListenRefused."""
    url = DatabaseUrl.parse(settings.database_url)
    limits = Limits(values=settings.limits)
    if settings.http_listen is not None:
        check_listen_address(settings.http_listen)
    agents = A2AService()
    servicers = (MessageService(), SummaryService(), StreamService(), ProjectionAdminService())
    loops = Loops()
    opened: list[Any] = []

    def register(server: grpc.aio.Server) -> None:
        messages, summaries, streams, admin = servicers
        message_service_pb2_grpc.add_MessageServiceServicer_to_server(messages, server)
        summary_service_pb2_grpc.add_SummaryServiceServicer_to_server(summaries, server)
        stream_service_pb2_grpc.add_StreamServiceServicer_to_server(streams, server)
        admin_service_pb2_grpc.add_ProjectionAdminServiceServicer_to_server(admin, server)
        add_a2a(agents, server)

    async def start(around: Surroundings) -> None:
        database = await Database.open(
            url,
            "projection",
            settings=settings.database_settings(),
            clock=clock or SystemClock(),
            purpose="threadkeep projection",
        )
        opened.append(database)
        await prepare(database, MIGRATIONS)
        around.health.follow("projection", database)
        signals = signals_for(
            database, direct_url=settings.database_direct_url, poll_seconds=settings.signal_poll_seconds
        )
        await signals.start()
        opened.append(signals)
        # What a checkpoint holds together is not bounded by the size of one commit.
        peers = Peers(around.addresses, max_message_bytes=-1)
        opened.append(peers)
        metrics = ProjectionMetrics(around.registry)
        runtime = Runtime(peers)
        channels = Channels(runtime, metrics, at_once=settings.projection_fetches_at_once)
        following = Following(database, signals, channels, metrics)
        rebuilding = Rebuilding(database, signals, runtime, channels, metrics)
        rooms = Rooms(
            Pager(await load_token_secret(database)),
            Reading(database),
            Freshness(database, signals, runtime, metrics),
            following,
            rebuilding,
            Streaming(runtime, limits, metrics, patience_seconds=settings.stream_patience_seconds),
        )
        for servicer in servicers:
            servicer.rooms = rooms
        agents.rooms = a2a_rooms(
            rooms.pager,
            rooms.reading,
            rooms.freshness,
            rooms.streaming,
            peers,
            address=settings.a2a_address or around.address,
        )
        await following.prepare()
        follower = Follower(
            runtime,
            following,
            rebuilding,
            metrics,
            loops,
            lease_ttl_seconds=settings.projection_lease_ttl_seconds,
            batch_events=settings.projection_batch_events,
        )

        async def follow() -> None:
            # In one process with the runtime, the log can be read once the host serves.
            await _either(around.serving, loops.stopping)
            await follower.run()

        loops.add("projection follower", follow)
        if settings.http_listen is not None:
            listener = Listener(
                settings.http_listen,
                reuse_port=settings.reuse_port,
                most_connections=2 * limits["max_subscriptions"] + 100,
                max_head_bytes=settings.max_metadata_bytes,
            )
            opened.append(listener)
            service.http_address = listener.address
            # No page of the network reaches a Unix socket.
            hosts = None if listener.address.startswith("unix") else settings.http_allowed_hosts
            requests = Requests(around.draining, hosts)
            events = Events(
                requests,
                rooms.streaming,
                metrics,
                heartbeat_seconds=settings.stream_heartbeat_seconds,
                retry_seconds=settings.stream_retry_seconds,
            )
            cards = CardsOverHttp(requests, agents.rooms.cards, metrics)
            app = application(events, settings.http_allowed_origins, cards.routes)

            async def answer() -> None:
                await _either(around.serving, loops.stopping)
                await listener.serve(app)
                await loops.stopping.wait()

            loops.add("projection http", answer)
        receipt_ttl = timedelta(seconds=settings.receipt_ttl_seconds)
        loops.every("projection receipts", 600, lambda: purge_receipts(database, older_than=receipt_ttl))
        loops.every("projection rebuild marks", 600, lambda: rebuilding.forget_old(receipt_ttl))
        await loops.start()

    async def stop() -> None:
        await loops.stop()
        while opened:
            await opened.pop().close()

    service = Service(
        name="projection",
        grpc_services=GRPC_SERVICES,
        register=register,
        start=start,
        stop=stop,
        backend=url.backend,
        limits=limits,
        capabilities=[
            "projection.messages.checkpoints",
            "a2a.1.0",
            *(["projection.streams.sse"] if settings.http_listen is not None else []),
        ],
        adopted={a2a.SERVICE: a2a.RULES},
    )
    return service


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
