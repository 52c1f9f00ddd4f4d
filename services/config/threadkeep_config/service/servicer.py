"""ConfigService: each method reads its request into values, calls the command, and renders what comes back."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import grpc

from threadkeep.config.v1 import config_service_pb2 as pb
from threadkeep.config.v1 import config_service_pb2_grpc, set_pb2, watch_pb2
from threadkeep_chassis.database import Connection
from threadkeep_chassis.errors import FieldInvalid, ScopeForbidden
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.paging import MAX_PAGE_BYTES, PageBuilder, Pager
from threadkeep_chassis.scope import Call, current_call
from threadkeep_config import files, wire
from threadkeep_config.commands import Commands
from threadkeep_config.domain.values import API, Content, Entity, EntityType
from threadkeep_config.domain.views import View
from threadkeep_config.service import render
from threadkeep_config.store.rows import size_of
from threadkeep_config.watch import ALL, Filter, Watched, Watches


class ConfigServicer(config_service_pb2_grpc.ConfigServiceServicer):
    """The servicer. `server.py` gives it what it calls once the database is open."""

    commands: Commands
    watches: Watches
    pager: Pager
    limits: Limits

    async def PutEntity(self, request: pb.PutEntityRequest, context: grpc.aio.ServicerContext) -> pb.PutEntityResponse:
        """See the contract."""
        call = current_call()
        key, scope = wire.target_from(request.key, call.scope)
        content = None if request.HasField("update_mask") else _content(key.type, request)
        expected = request.expected_revision if request.HasField("expected_revision") else None
        if content is None:
            _check_update(key.type, request)

        def change(current: dict[str, Any]) -> Content:
            changed = wire.updated(key.type, current, request.definition, request.update_mask)
            return wire.content_from(key.type, changed, API, "definition.")

        async def work(connection: Connection) -> pb.PutEntityResponse:
            if content is None:
                entity, changed = await self.commands.update(connection, key, scope, change, expected)
            else:
                entity, changed = await self.commands.put(connection, key, scope, content, expected)
            return pb.PutEntityResponse(entity=wire.entity_to(entity), changed=changed)

        return await self.commands.once(call, request, pb.PutEntityResponse, work)

    async def GetEntity(self, request: pb.GetEntityRequest, context: grpc.aio.ServicerContext) -> pb.GetEntityResponse:
        """See the contract."""
        key, _ = wire.target_from(request.key, current_call().scope)
        return pb.GetEntityResponse(entity=wire.entity_to(await self.commands.get(key)))

    async def ListEntities(
        self, request: pb.ListEntitiesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListEntitiesResponse:
        """See the contract."""
        call = current_call()
        builder = await self._page(call, request, include_inherited=request.include_inherited)
        return pb.ListEntitiesResponse(
            entities=[wire.entity_to(entity) for entity in builder.items],
            next_page_token=builder.token(self.pager, call, request),
        )

    async def DeleteEntity(
        self, request: pb.DeleteEntityRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteEntityResponse:
        """See the contract."""
        call = current_call()
        key, scope = wire.target_from(request.key, call.scope)
        expected = request.expected_revision if request.HasField("expected_revision") else None

        async def work(connection: Connection) -> pb.DeleteEntityResponse:
            tombstone = await self.commands.delete(connection, key, scope, expected)
            return pb.DeleteEntityResponse(entity=wire.entity_to(tombstone))

        return await self.commands.once(call, request, pb.DeleteEntityResponse, work)

    async def Resolve(self, request: pb.ResolveRequest, context: grpc.aio.ServicerContext) -> pb.ResolveResponse:
        """See the contract."""
        type = wire.entity_type(request.type, "type")
        return render.resolved(*await self.commands.resolve(current_call().scope, type, request.name))

    async def ResolveMany(
        self, request: pb.ResolveManyRequest, context: grpc.aio.ServicerContext
    ) -> pb.ResolveManyResponse:
        """See the contract."""
        references = [
            (wire.entity_type(one.type, f"references[{index}].type"), one.name)
            for index, one in enumerate(request.references)
        ]
        entries, revision = await self.commands.resolve_many(current_call().scope, references)
        return pb.ResolveManyResponse(
            resolutions=[render.resolution(entry) for entry in entries], config_revision=revision
        )

    async def Explain(self, request: pb.ExplainRequest, context: grpc.aio.ServicerContext) -> pb.ExplainResponse:
        """See the contract."""
        type = wire.entity_type(request.type, "type")
        candidates = await self.commands.explain(current_call().scope, type, request.name)
        return pb.ExplainResponse(
            candidates=[
                pb.Candidate(
                    entity=wire.entity_to(one.entity),
                    winner=one.is_winner,
                    explanation=one.explanation,
                    counting_fields=one.counting_fields,
                )
                for one in candidates
            ],
            key_precedence=self.commands.views.precedence.keys,
        )

    async def ResolveManifest(
        self, request: pb.ResolveManifestRequest, context: grpc.aio.ServicerContext
    ) -> pb.ResolveManifestResponse:
        """See the contract."""
        manifest, revision = await self.commands.manifest(current_call().scope, request.agent_name)
        return pb.ResolveManifestResponse(
            manifest_json=manifest.document,
            digest=manifest.digest,
            agent_revision=manifest.agent_revision,
            config_revision=revision,
        )

    async def ListRevisions(
        self, request: pb.ListRevisionsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListRevisionsResponse:
        """See the contract."""
        call = current_call()
        key, _ = wire.target_from(request.key, call.scope)
        page = self.pager.page(call, request)
        builder: PageBuilder[Entity] = PageBuilder(page)
        before = page.after[0] if page.after is not None else None
        for entity in await self.commands.history(key, before=before, limit=builder.wanted, max_bytes=MAX_PAGE_BYTES):
            if not builder.add(entity, (entity.revision,), size_of(entity)):
                break
        return pb.ListRevisionsResponse(
            revisions=[wire.entity_to(entity) for entity in builder.items],
            next_page_token=builder.token(self.pager, call, request),
        )

    async def DiffRevisions(
        self, request: pb.DiffRevisionsRequest, context: grpc.aio.ServicerContext
    ) -> pb.DiffRevisionsResponse:
        """See the contract."""
        key, _ = wire.target_from(request.key, current_call().scope)
        changes = await self.commands.compare(key, request.from_revision, request.to_revision)
        return pb.DiffRevisionsResponse(changes=[render.field_change(change) for change in changes])

    async def Rollback(self, request: pb.RollbackRequest, context: grpc.aio.ServicerContext) -> pb.RollbackResponse:
        """See the contract."""
        call = current_call()
        key, scope = wire.target_from(request.key, call.scope)
        expected = request.expected_revision if request.HasField("expected_revision") else None

        async def work(connection: Connection) -> pb.RollbackResponse:
            entity, changed = await self.commands.roll_back(connection, key, scope, request.to_revision, expected)
            return pb.RollbackResponse(entity=wire.entity_to(entity), changed=changed)

        return await self.commands.once(call, request, pb.RollbackResponse, work)

    async def ApplySet(self, request: pb.ApplySetRequest, context: grpc.aio.ServicerContext) -> pb.ApplySetResponse:
        """See the contract."""
        call = current_call()
        paths: set[tuple[str, int]] = set()
        for index, file in enumerate(request.files):
            if (file.path, file.layer) in paths:
                raise FieldInvalid(f"files[{index}].path", "is in the set twice")
            paths.add((file.path, file.layer))
        parsed = await asyncio.to_thread(
            files.parse_set, [(file.path, file.content, file.layer) for file in request.files], self.limits
        )

        async def work(connection: Connection) -> pb.ApplySetResponse:
            applied = await self.commands.apply_set(
                connection,
                call.scope,
                parsed.contents,
                parsed.broken,
                dry_run=request.dry_run,
                keep_missing=request.keep_missing,
            )
            problems = sorted([*parsed.problems, *parsed.located(applied.refused)])
            return pb.ApplySetResponse(
                changes=render.set_changes(applied.outcome, with_fields=request.with_fields, room=MAX_PAGE_BYTES),
                problems=[render.set_problem(one) for one in problems],
                config_revision=applied.revision,
            )

        return await self.commands.once(call, request, pb.ApplySetResponse, work)

    async def ExportSet(self, request: pb.ExportSetRequest, context: grpc.aio.ServicerContext) -> pb.ExportSetResponse:
        """See the contract."""
        call = current_call()
        builder = await self._page(call, request, include_inherited=False)
        exported = await asyncio.to_thread(files.export_set, builder.items)
        return pb.ExportSetResponse(
            files=[set_pb2.SetFile(path=path, content=content) for path, content in exported.files],
            problems=[render.set_problem(one) for one in exported.problems],
            next_page_token=builder.token(self.pager, call, request),
        )

    async def _page(
        self, call: Call, request: pb.ListEntitiesRequest | pb.ExportSetRequest, *, include_inherited: bool
    ) -> PageBuilder[Entity]:
        """The page of entities that a list or an export asks for."""
        types = [wire.entity_type(type, f"types[{index}]") for index, type in enumerate(request.types)]
        page = self.pager.page(call, request)
        builder: PageBuilder[Entity] = PageBuilder(page)
        found = await self.commands.list_entities(
            call.scope,
            include_inherited=include_inherited,
            types=types,
            after=page.after,
            limit=builder.wanted,
            max_bytes=MAX_PAGE_BYTES,
        )
        for entity in found:
            key = (int(entity.key.type), entity.key.name, entity.key.scope_key)
            if not builder.add(entity, key, size_of(entity)):
                break
        return builder

    async def Watch(  # type: ignore[override]
        self, request: pb.WatchRequest, context: grpc.aio.ServicerContext
    ) -> None:
        """Writes frames itself: a generator would hold the last one until the next."""
        call = current_call()
        view = self.commands.views.watched(call)
        filters, refused = _filters(request, view)
        after = request.after_revision if request.HasField("after_revision") else None
        # aclosing frees what the watch holds when it ends, not at garbage collection (B96).
        async with aclosing(self.watches.watch(Watched(view, filters), after, call.draining)) as frames:
            for one in refused:
                await context.write(pb.WatchResponse(refused=one))
            del request, refused
            async for frame in frames:
                message = render.frame(frame)
                del frame
                await context.write(message)
                del message


def _check_update(type: EntityType, request: pb.PutEntityRequest) -> None:
    if request.hidden:
        raise FieldInvalid("update_mask", "must be absent when an entity is to be hidden")
    if request.definition.WhichOneof("definition") != type.field:
        raise FieldInvalid("definition", f"must be of the key's type: set `{type.field}`")


def _content(type: EntityType, request: pb.PutEntityRequest) -> Content:
    if request.hidden:
        if request.HasField("definition"):
            raise FieldInvalid("definition", "must be absent in an entity that is hidden")
        return Content(API, hidden=True)
    if not request.HasField("definition"):
        raise FieldInvalid("definition", "is required unless the entity is hidden")
    return wire.content_from(type, request.definition, API, "definition.")


def _filters(request: pb.WatchRequest, view: View) -> tuple[tuple[Filter, ...], list[watch_pb2.FilterRefused]]:
    """The filters, and those that are refused beside them. Raises ScopeForbidden if no other is left."""
    filters: list[Filter] = []
    refused: list[watch_pb2.FilterRefused] = []
    ids: set[str] = set()
    for index, one in enumerate(request.filters):
        path = f"filters[{index}]"
        if one.filter_id in ids:
            raise FieldInvalid(f"{path}.filter_id", "must not be used twice")
        ids.add(one.filter_id)
        types = frozenset(wire.entity_type(type, f"{path}.types[{place}]") for place, type in enumerate(one.types))
        scope_key = wire.scope_from(one.exact_scope, f"{path}.exact_scope").key if one.HasField("exact_scope") else None
        if scope_key is not None and not view.covers(scope_key):
            error = ScopeForbidden(f"{path}.exact_scope names a scope that this call does not see.")
            refused.append(watch_pb2.FilterRefused(filter_id=one.filter_id, reason=error.reason, message=error.message))
            continue
        filters.append(Filter(one.filter_id, types, frozenset(one.names), scope_key))
    if refused and not filters:
        raise ScopeForbidden(refused[0].message)
    return tuple(filters) or (ALL,), refused
