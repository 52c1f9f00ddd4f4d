"""Uploads: chunks are kept as they come, and count only once the trailer was checked (A1, A3).

No transaction spans the client's stream: each chunk is one short transaction, and the version with its receipt another.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime

from google.protobuf.message import Message

from threadkeep_artifacts.blobs.routed import RoutedBlobs
from threadkeep_artifacts.commands.staging import staging
from threadkeep_artifacts.domain.content import Assembler, check_claim
from threadkeep_artifacts.domain.decisions import check_intent, creates, refuse_upload
from threadkeep_artifacts.domain.errors import UploadAbandoned
from threadkeep_artifacts.domain.metadata import check_metadata
from threadkeep_artifacts.domain.values import ArtifactVersion, ContentClaim, StoredContent, UploadIntent
from threadkeep_artifacts.store import artifacts, contents, versions
from threadkeep_chassis.clock import Clock
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import Contention, FieldInvalid
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.receipts import find_receipt, once
from threadkeep_chassis.scope import Call


class Uploads:
    """Takes uploads."""

    def __init__(
        self, database: Database, blobs: RoutedBlobs, limits: Limits, clock: Clock, *, upload_ttl_seconds: float
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._limits = limits
        self._clock = clock
        self._ttl = upload_ttl_seconds

    async def receive(
        self,
        call: Call,
        intent: UploadIntent,
        header: bytes,
        parts: AsyncIterator[bytes | ContentClaim],
        response_type: type[Message],
        render: Callable[[ArtifactVersion], Message],
    ) -> Message:
        """Takes an upload whose `header` (deterministic bytes) was read; `parts` are its chunks and then its claim.

        Raises FieldInvalid, LimitExceeded, ArtifactNotFound, IdTaken, RevisionConflict, UploadMismatch,
        RequestIdReused, UploadAbandoned.
        """
        check_intent(intent)
        check_metadata(intent.metadata, "header.metadata")
        if await self._is_settled(call, intent):
            # A retry: only its trailer matters, so nothing is kept.
            return await self._replay(call, intent, header, await self._claim_of(parts), response_type)
        blob_id = self._blobs.blob_id(new_id())
        assembler = Assembler(self._blobs.chunk_bytes)
        async with staging(self._database, self._blobs, self._clock, blob_id, self._ttl) as stage:
            claim: ContentClaim | None = None
            async for part in parts:
                if isinstance(part, ContentClaim):
                    claim = part
                    break
                self._limits.check("max_chunk_bytes", len(part))
                self._limits.check("max_artifact_bytes", assembler.size + len(part))
                for index, chunk in assembler.take(part):
                    await stage.write(index, chunk)
            if claim is None:
                raise FieldInvalid("trailer", "must end the upload")
            for index, chunk in assembler.last():
                await stage.write(index, chunk)
            await stage.written()
            content = assembler.content(blob_id)
            artifact_id = intent.artifact_id if intent.artifact_id is not None else new_id()

            async def write(connection: Connection) -> Message:
                check_claim(content, claim)
                return render(await self._write_version(connection, call.scope_key, artifact_id, intent, content))

            print_ = _fingerprint(call, header, claim)
            return await once(self._database, call, intent.request_id, print_, response_type, write)

    async def _is_settled(self, call: Call, intent: UploadIntent) -> bool:
        """True if the request_id has a receipt. Else what can't succeed is refused now, before content is sent."""
        async with self._database.read(snapshot=True) as connection:
            if await find_receipt(connection, call.receipt_key, intent.request_id) is not None:
                return True
            if intent.artifact_id is not None:
                state = await artifacts.read_state(connection, call.scope_key, intent.artifact_id)
                refusal = refuse_upload(intent, intent.artifact_id, state)
                if refusal is not None:
                    raise refusal
        return False

    async def _claim_of(self, parts: AsyncIterator[bytes | ContentClaim]) -> ContentClaim:
        async for part in parts:
            if isinstance(part, ContentClaim):
                return part
        raise FieldInvalid("trailer", "must end the upload")

    async def _replay(
        self, call: Call, intent: UploadIntent, header: bytes, claim: ContentClaim, response_type: type[Message]
    ) -> Message:
        async def gone(connection: Connection) -> Message:
            # The receipt expired between the two looks, so this is a new upload, and its chunks were not kept.
            raise UploadAbandoned()

        print_ = _fingerprint(call, header, claim)
        return await once(self._database, call, intent.request_id, print_, response_type, gone)

    async def _write_version(
        self, connection: Connection, scope_key: str, artifact_id: str, intent: UploadIntent, content: StoredContent
    ) -> ArtifactVersion:
        now = await connection.now()
        if not await contents.close_stage(connection, content.blob_id):
            raise UploadAbandoned()
        number, created = await self._allocate(connection, scope_key, artifact_id, intent, now)
        await contents.refer(connection, scope_key, content, now)
        version = ArtifactVersion(
            artifact_id=artifact_id,
            version=number,
            metadata=intent.metadata,
            size=content.size,
            sha256=content.sha256,
            create_time=now,
            artifact_create_time=created,
        )
        await versions.insert_version(connection, scope_key, version)
        return version

    async def _allocate(
        self, connection: Connection, scope_key: str, artifact_id: str, intent: UploadIntent, now: datetime
    ) -> tuple[int, datetime]:
        """The new version's number, and when the artifact was made. Compares and sets in the statement."""
        if creates(intent):
            if await artifacts.create(connection, scope_key, artifact_id, intent.metadata, now):
                return 1, now
        else:
            advanced = await artifacts.advance(
                connection, scope_key, artifact_id, intent.metadata, intent.expected_version
            )
            if advanced is not None:
                return advanced
        refusal = refuse_upload(intent, artifact_id, await artifacts.read_state(connection, scope_key, artifact_id))
        # No refusal: somebody changed it between the two statements.
        raise refusal if refusal is not None else Contention()


def _fingerprint(call: Call, header: bytes, claim: ContentClaim) -> bytes:
    """Uploads of one request_id are the same when header and trailer are."""
    whole = hashlib.sha256(call.method.encode() + b"\x00" + len(header).to_bytes(8, "big") + header)
    whole.update(f"{claim.size}:{claim.sha256}".encode())
    return whole.digest()
