"""The composition root of the artifacts service: settings in, a Service out."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import grpc
from pydantic import Field

from threadkeep.artifacts.v1 import artifact_service_pb2_grpc
from threadkeep_artifacts.commands.artifacts import Artifacts
from threadkeep_artifacts.commands.comparing import Comparing
from threadkeep_artifacts.commands.downloads import Downloads
from threadkeep_artifacts.commands.following import Following
from threadkeep_artifacts.commands.signing import Signing
from threadkeep_artifacts.commands.sweeping import Sweep
from threadkeep_artifacts.commands.uploads import Uploads
from threadkeep_artifacts.commands.writing import CONTENT_QUOTA, VERSION_QUOTA, Writing
from threadkeep_artifacts.content_settings import ContentSettings, content_store
from threadkeep_artifacts.follower import Follower
from threadkeep_artifacts.loops.sweep import add_loops
from threadkeep_artifacts.peers import RUNTIME, DeletedSessions, Leases
from threadkeep_artifacts.service.artifact_service import ArtifactService, Rooms
from threadkeep_chassis.clock import Clock, SystemClock
from threadkeep_chassis.database import Database, DatabaseUrl
from threadkeep_chassis.hosting import Service, Surroundings
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.limits import Limit, Limits
from threadkeep_chassis.loops import Loops
from threadkeep_chassis.meta import load_token_secret
from threadkeep_chassis.migrations import MigrationSet, prepare
from threadkeep_chassis.paging import Pager
from threadkeep_chassis.peers import Peers

MIGRATIONS = MigrationSet("artifacts", "threadkeep_artifacts")

LIMITS = (
    Limit("max_chunk_bytes", 1024 * 1024, "Send the content in smaller chunks."),
    Limit("max_artifact_bytes", 64 * 1024**3, "Split the content over several artifacts."),
    Limit("max_inline_bytes", 1024 * 1024, "Stream it: UploadVersion."),
    Limit("max_diff_bytes", 1024 * 1024, "Download both versions and compare them yourself."),
    Limit("max_diff_lines", 20_000, "Download both versions and compare them yourself."),
    Limit(VERSION_QUOTA, 10_000_000, "Delete artifacts or versions that nobody needs."),
    Limit(CONTENT_QUOTA, 1024**4, "Delete artifacts or versions that nobody needs."),
)


class ArtifactsSettings(ContentSettings):
    """What the artifacts service can be told. Durations in seconds."""

    artifacts_upload_ttl_seconds: float = Field(600.0, gt=0, description="Silence after which an upload is given up.")
    artifacts_garbage_grace_seconds: float = Field(
        3600.0, ge=0, description="How long content is kept that no version refers to any more."
    )
    artifacts_restore_window_seconds: float = Field(
        7 * 24 * 3600.0, ge=0, description="How long what was deleted can be restored."
    )
    artifacts_lease_memory_seconds: float = Field(
        1.0,
        ge=0,
        description="How long the runtime's word that a lease is held counts, for reads of private artifacts.",
    )
    artifacts_follow_lease_ttl_seconds: float = Field(
        10.0,
        gt=0,
        description="After how long another replica follows the runtime's log, if the one that does stopped.",
    )
    artifacts_sweep_interval_seconds: float = Field(60.0, gt=0, description="How often such content is looked for.")


def build(settings: ArtifactsSettings, *, clock: Clock | None = None) -> Service:
    """The artifacts service. Nothing is opened before the host starts it. Raises DatabaseUrlInvalid."""
    time = clock or SystemClock()
    url = DatabaseUrl.parse(settings.database_url)
    limits = Limits(*LIMITS, values=settings.limits)
    servicer = ArtifactService()
    loops = Loops()
    opened: list[Database | Peers] = []

    def register(server: grpc.aio.Server) -> None:
        artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(servicer, server)

    async def start(surroundings: Surroundings) -> None:
        database = await Database.open(
            url, "artifacts", settings=settings.database_settings(), clock=time, purpose="threadkeep artifacts"
        )
        opened.append(database)
        await prepare(database, MIGRATIONS)
        surroundings.health.follow("artifacts", database)
        pager = Pager(await load_token_secret(database))
        blobs = content_store(settings, database)
        await blobs.start()
        peers = Peers(surroundings.addresses) if RUNTIME in surroundings.addresses else None
        if peers is not None:
            opened.append(peers)
        writing, downloads = Writing(limits), Downloads(database, blobs)
        artifacts = Artifacts(database, writing)
        servicer.rooms = Rooms(
            database,
            pager,
            Uploads(database, blobs, writing, limits, time, upload_ttl_seconds=settings.artifacts_upload_ttl_seconds),
            downloads,
            artifacts,
            writing,
            Comparing(downloads, limits),
            Signing(downloads, blobs, time, signed_seconds=settings.artifacts_signed_download_seconds),
            Leases(peers, time, remembered_seconds=settings.artifacts_lease_memory_seconds),
            limits,
        )
        sweep = Sweep(
            database,
            blobs,
            upload_ttl_seconds=settings.artifacts_upload_ttl_seconds,
            garbage_grace_seconds=settings.artifacts_garbage_grace_seconds,
            restore_window_seconds=settings.artifacts_restore_window_seconds,
        )
        add_loops(
            loops,
            database,
            sweep,
            surroundings.registry,
            sweep_interval_seconds=settings.artifacts_sweep_interval_seconds,
            receipt_ttl_seconds=settings.receipt_ttl_seconds,
        )
        if peers is not None:
            ttl = timedelta(seconds=settings.artifacts_follow_lease_ttl_seconds)
            follower = Follower(
                DeletedSessions(peers),
                Following(database, artifacts, new_id(), ttl),
                loops,
                surroundings.registry,
                ttl,
            )

            async def follow() -> None:
                # In one process with the runtime, the log can be read once the host serves.
                await _either(surroundings.serving, loops.stopping)
                await follower.run()

            loops.add("artifacts-follower", follow)
        await loops.start()

    async def stop() -> None:
        await loops.stop()
        while opened:
            await opened.pop().close()

    return Service(
        name="artifacts",
        grpc_services=["threadkeep.artifacts.v1.ArtifactService"],
        register=register,
        start=start,
        stop=stop,
        backend=url.backend,
        limits=limits,
        capabilities=[f"artifacts.content.{settings.artifacts_content}"],
    )


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
