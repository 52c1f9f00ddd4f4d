"""Uploads: chunks are kept as they come, and count only once the trailer was checked (A1, A3).

No transaction spans the client's stream: each chunk is one short transaction, and the version with its receipt another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from google.protobuf.message import Message

from threadkeep_artifacts.blobs.routed import RoutedBlobs
from threadkeep_artifacts.commands.staging import Stage, staging
from threadkeep_artifacts.commands.writing import Writing
from threadkeep_artifacts.domain.content import Assembler, check_claim
from threadkeep_artifacts.domain.decisions import check_intent, refuse_upload
from threadkeep_artifacts.domain.errors import OffsetOutOfRange, UploadAbandoned, UploadNotFound
from threadkeep_artifacts.domain.metadata import check_metadata
from threadkeep_artifacts.domain.values import ArtifactVersion, ContentClaim, UploadIntent
from threadkeep_artifacts.domain.visibility import Reader
from threadkeep_artifacts.store import artifacts, contents, scopes
from threadkeep_chassis.clock import Clock
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import FieldInvalid, Unavailable
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.receipts import find_receipt, once
from threadkeep_chassis.scope import Call


class Uploads:
    """Takes uploads."""

    def __init__(
        self,
        database: Database,
        blobs: RoutedBlobs,
        writing: Writing,
        limits: Limits,
        clock: Clock,
        *,
        upload_ttl_seconds: float,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._writing = writing
        self._limits = limits
        self._clock = clock
        self._ttl = upload_ttl_seconds

    async def receive(
        self,
        call: Call,
        reader: Reader,
        intent: UploadIntent,
        header: bytes,
        parts: AsyncIterator[bytes | ContentClaim],
        response_type: type[Message],
        render: Callable[[ArtifactVersion], Message],
    ) -> Message:
        """Takes an upload whose `header` (deterministic bytes) was read; `parts` are its chunks and then its claim.

        Raises FieldInvalid, LimitExceeded, QuotaExceeded, ArtifactNotFound, IdTaken, PathTaken, RevisionConflict,
        UploadMismatch, UploadNotFound, OffsetOutOfRange, RequestIdReused, UploadAbandoned, ContentStoreUnavailable.
        """
        check_intent(intent)
        check_metadata(intent.metadata, "header.metadata")
        if await self._is_settled(call, reader, intent):
            # A retry: only its trailer matters, so nothing is kept.
            return await self._replay(call, intent, header, await self._claim_of(parts), response_type)

        async def open_(connection: Connection, holder: str) -> str:
            return await self._open_stage(connection, call.scope_key, intent, holder)

        def survives(error: BaseException) -> bool:
            # The stream broke, or something was out of reach; what was refused is refused again.
            return intent.upload_id is not None and isinstance(
                error, asyncio.CancelledError | Unavailable | _NoTrailer | UploadAbandoned | OffsetOutOfRange
            )

        async with staging(self._database, self._blobs, self._clock, self._ttl, open_, survives) as stage:
            assembler = await self._assembler(stage, intent.offset)
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
                raise _NoTrailer("trailer", "must end the upload")
            for index, chunk in assembler.last():
                await stage.write(index, chunk)
            await stage.written()
            content = assembler.content(stage.blob_id, await stage.sha256(), bytes(stage.chunk_digests))
            artifact_id = intent.artifact_id if intent.artifact_id is not None else new_id()

            async def write(connection: Connection) -> Message:
                check_claim(content, claim)
                await scopes.change(connection, call.scope_key)
                if not await contents.close_stage(connection, content.blob_id, stage.holder):
                    raise UploadAbandoned()
                return render(
                    await self._writing.from_content(
                        connection, call.scope_key, reader, intent, artifact_id, content, assembler.head
                    )
                )

            print_ = _fingerprint(call, header, claim)
            return await once(self._database, call, intent.request_id, print_, response_type, write)

    async def kept(self, scope_key: str, upload_id: str) -> int:
        """How many bytes of a broken upload are kept. Raises UploadNotFound."""
        async with self._database.read() as connection:
            blob_id = await contents.find_stage(connection, contents.StageName(scope_key, upload_id))
        if blob_id is None:
            raise UploadNotFound()
        chunk_bytes = self._blobs.chunk_bytes_of(blob_id)
        count = await self._blobs.count_chunks(blob_id)
        last = await self._blobs.read_chunk(blob_id, count - 1) if count else None
        # The content's last chunk is shorter, and is sent again.
        return (count if last is None or len(last) == chunk_bytes else count - 1) * chunk_bytes

    async def _open_stage(self, connection: Connection, scope_key: str, intent: UploadIntent, holder: str) -> str:
        now = await connection.now()
        name = contents.StageName(scope_key, intent.upload_id) if intent.upload_id is not None else None
        if name is not None:
            # Two streams that begin under one name come one after the other.
            await scopes.change(connection, scope_key)
        if intent.offset == 0:
            blob_id = self._blobs.blob_id(new_id())
            await contents.open_stage(connection, blob_id, holder, now, name)
            return blob_id
        taken = await contents.take_over(connection, name, holder, now) if name is not None else None
        if taken is None:
            raise UploadNotFound()
        return taken

    async def _assembler(self, stage: Stage, offset: int) -> Assembler:
        """What takes the chunks from the offset on: it has taken what is kept before it."""
        blob_id = stage.blob_id
        chunk_bytes = self._blobs.chunk_bytes_of(blob_id)
        assembler = Assembler(chunk_bytes)
        if offset % chunk_bytes:
            kept = await self._blobs.count_chunks(blob_id) * chunk_bytes
            raise OffsetOutOfRange(offset, kept)
        for index in range(offset // chunk_bytes):
            chunk = await self._blobs.read_chunk(blob_id, index)
            if chunk is None or len(chunk) != chunk_bytes:
                raise OffsetOutOfRange(offset, index * chunk_bytes)
            await stage.adopt(chunk)
            for _ in assembler.take(chunk):
                pass
        return assembler

    async def _is_settled(self, call: Call, reader: Reader, intent: UploadIntent) -> bool:
        """True if the request_id has a receipt. Else what can't succeed is refused now, before content is sent."""
        async with self._database.read(snapshot=True) as connection:
            if await find_receipt(connection, call.receipt_key, intent.request_id) is not None:
                return True
            if intent.artifact_id is not None:
                state = await artifacts.read_state(connection, call.scope_key, intent.artifact_id)
                refusal = refuse_upload(intent, intent.artifact_id, state, reader)
                if refusal is not None:
                    raise refusal
            await self._writing.check_path(connection, call.scope_key, intent.metadata, intent.artifact_id)
            usage = await scopes.read_usage(connection, call.scope_key)
        self._writing.check_quota(replace(usage, version_count=usage.version_count + 1))
        return False

    async def _claim_of(self, parts: AsyncIterator[bytes | ContentClaim]) -> ContentClaim:
        async for part in parts:
            if isinstance(part, ContentClaim):
                return part
        raise _NoTrailer("trailer", "must end the upload")

    async def _replay(
        self, call: Call, intent: UploadIntent, header: bytes, claim: ContentClaim, response_type: type[Message]
    ) -> Message:
        async def gone(connection: Connection) -> Message:
            # The receipt expired between the two looks, so this is a new upload, and its chunks were not kept.
            raise UploadAbandoned()

        print_ = _fingerprint(call, header, claim)
        return await once(self._database, call, intent.request_id, print_, response_type, gone)


class _NoTrailer(FieldInvalid):
    """The stream ended early."""


def _fingerprint(call: Call, header: bytes, claim: ContentClaim) -> bytes:
    """Uploads of one request_id are the same when header and trailer are."""
    whole = hashlib.sha256(call.method.encode() + b"\x00" + len(header).to_bytes(8, "big") + header)
    whole.update(f"{claim.size}:{claim.sha256}".encode())
    return whole.digest()
