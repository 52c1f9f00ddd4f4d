"""Config calls for tests, as any client would make them with the stubs, and config servers alone."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf import json_format

from tests.support.calls import ErrorDetails, Metadata, error_details, scope_of
from tests.support.descriptors import fresh_id
from tests.support.suite import migrate_one
from threadkeep.common.v1 import payload_pb2
from threadkeep.config.v1 import config_service_pb2 as pb
from threadkeep.config.v1 import config_service_pb2_grpc, entity_pb2, set_pb2, watch_pb2

SECONDS = 30.0

PROVIDER = entity_pb2.ENTITY_TYPE_PROVIDER
TOOL = entity_pb2.ENTITY_TYPE_TOOL
AGENT = entity_pb2.ENTITY_TYPE_AGENT
SKILL = entity_pb2.ENTITY_TYPE_SKILL
MCP_SERVER = entity_pb2.ENTITY_TYPE_MCP_SERVER
SANDBOX_PROFILE = entity_pb2.ENTITY_TYPE_SANDBOX_PROFILE
DEFAULTS = entity_pb2.ENTITY_TYPE_DEFAULTS
CUSTOM = entity_pb2.ENTITY_TYPE_CUSTOM
CUSTOM_SCHEMA = entity_pb2.ENTITY_TYPE_CUSTOM_SCHEMA


def agent(prompt: str = "Be brief.", **more: Any) -> entity_pb2.Definition:
    """An agent."""
    return entity_pb2.Definition(agent=entity_pb2.Agent(system_prompt=prompt, **more))


def tool(description: str = "Reads.", entry_point: str = "tools.files:read", **more: Any) -> entity_pb2.Definition:
    """A tool."""
    python = entity_pb2.PythonEntryPoint(entry_point=entry_point)
    return entity_pb2.Definition(tool=entity_pb2.Tool(description=description, python=python, **more))


def provider(type: str = "scripted", **more: Any) -> entity_pb2.Definition:
    """A provider."""
    return entity_pb2.Definition(provider=entity_pb2.Provider(type=type, **more))


def defined(**definition: Any) -> entity_pb2.Definition:
    """A definition of any type, its body as JSON: `defined(skill={"description": "..."})`."""
    return json_format.ParseDict(definition, entity_pb2.Definition())


def schema(document: Any, **more: Any) -> entity_pb2.Definition:
    """The schema of documents."""
    return defined(custom_schema={"schema_json": json.dumps(document, separators=(",", ":")), **more})


def custom(schema: str, document: Any) -> entity_pb2.Definition:
    """A document."""
    return defined(custom={"schema": schema, "document_json": json.dumps(document, separators=(",", ":"))})


class Caller:
    """Calls the service in one scope. Every mutation has a request id of its own."""

    def __init__(self, channel: grpc.aio.Channel, values: Mapping[str, str]) -> None:
        self._channel = channel
        self.values = dict(values)
        self.stub = config_service_pb2_grpc.ConfigServiceStub(channel)

    @property
    def metadata(self) -> Metadata:
        """The metadata of its calls."""
        return scope_of(self.values)

    def within(self, **values: str) -> "Caller":
        """A caller in a narrower scope."""
        return Caller(self._channel, {**self.values, **values})

    def elsewhere(self, values: Mapping[str, str]) -> "Caller":
        """A caller in another scope."""
        return Caller(self._channel, values)

    def key(self, type: int, name: str, target: Mapping[str, str] | None = None) -> pb.EntityKey:
        """An entity's key."""
        target_scope = None if target is None else payload_pb2.Scope(values=target)
        return pb.EntityKey(type=type, name=name, target_scope=target_scope)

    async def put(
        self,
        type: int,
        name: str,
        definition: entity_pb2.Definition | None = None,
        *,
        target: Mapping[str, str] | None = None,
        **more: Any,
    ) -> pb.PutEntityResponse:
        """Puts an entity."""
        request = pb.PutEntityRequest(
            request_id=fresh_id(), key=self.key(type, name, target), definition=definition, **more
        )
        return await self.stub.PutEntity(request, metadata=self.metadata, timeout=SECONDS)

    async def get(self, type: int, name: str, target: Mapping[str, str] | None = None) -> entity_pb2.Entity:
        """Gets an entity."""
        request = pb.GetEntityRequest(key=self.key(type, name, target))
        return (await self.stub.GetEntity(request, metadata=self.metadata, timeout=SECONDS)).entity

    async def delete(self, type: int, name: str, **more: Any) -> entity_pb2.Entity:
        """Deletes an entity."""
        request = pb.DeleteEntityRequest(request_id=fresh_id(), key=self.key(type, name), **more)
        return (await self.stub.DeleteEntity(request, metadata=self.metadata, timeout=SECONDS)).entity

    async def roll_back(self, type: int, name: str, to_revision: int, **more: Any) -> pb.RollbackResponse:
        """Rolls an entity back."""
        request = pb.RollbackRequest(request_id=fresh_id(), key=self.key(type, name), to_revision=to_revision, **more)
        return await self.stub.Rollback(request, metadata=self.metadata, timeout=SECONDS)

    async def diff(self, type: int, name: str, from_revision: int, to_revision: int = 0) -> dict[str, tuple[str, str]]:
        """What changed: path to (old, new), each an empty text where the field is not there."""
        request = pb.DiffRevisionsRequest(
            key=self.key(type, name), from_revision=from_revision, to_revision=to_revision
        )
        answer = await self.stub.DiffRevisions(request, metadata=self.metadata, timeout=SECONDS)
        return {change.path: (change.old_json, change.new_json) for change in answer.changes}

    async def resolve(self, type: int, name: str) -> pb.ResolveResponse:
        """Resolves an entity."""
        return await self.stub.Resolve(pb.ResolveRequest(type=type, name=name), metadata=self.metadata, timeout=SECONDS)

    async def resolve_many(self, *references: tuple[int, str]) -> pb.ResolveManyResponse:
        """Resolves several entities."""
        wanted = [pb.EntityReference(type=type, name=name) for type, name in references]
        request = pb.ResolveManyRequest(references=wanted)
        return await self.stub.ResolveMany(request, metadata=self.metadata, timeout=SECONDS)

    async def export(self, page_size: int = 0) -> tuple[dict[str, bytes], list[str]]:
        """The scope's files, path to content, and the paths of problems."""
        files: dict[str, bytes] = {}
        problems: list[str] = []
        token = ""
        while True:
            request = pb.ExportSetRequest(page_size=page_size, page_token=token)
            page = await self.stub.ExportSet(request, metadata=self.metadata, timeout=SECONDS)
            files |= {file.path: file.content for file in page.files}
            problems += [problem.path for problem in page.problems]
            token = page.next_page_token
            if not token:
                return files, problems

    async def explain(self, type: int, name: str) -> pb.ExplainResponse:
        """Explains a resolution."""
        return await self.stub.Explain(pb.ExplainRequest(type=type, name=name), metadata=self.metadata, timeout=SECONDS)

    async def manifest(self, name: str) -> pb.ResolveManifestResponse:
        """Resolves a manifest."""
        request = pb.ResolveManifestRequest(agent_name=name)
        return await self.stub.ResolveManifest(request, metadata=self.metadata, timeout=SECONDS)

    async def list_all(self, page_size: int = 0, **more: Any) -> list[entity_pb2.Entity]:
        """Every entity of a list, page by page."""
        found: list[entity_pb2.Entity] = []
        token = ""
        while True:
            request = pb.ListEntitiesRequest(page_size=page_size, page_token=token, **more)
            page = await self.stub.ListEntities(request, metadata=self.metadata, timeout=SECONDS)
            found.extend(page.entities)
            token = page.next_page_token
            if not token:
                return found

    async def history(self, type: int, name: str, page_size: int = 0) -> list[entity_pb2.Entity]:
        """Every revision of an entity, newest first."""
        found: list[entity_pb2.Entity] = []
        token = ""
        while True:
            request = pb.ListRevisionsRequest(key=self.key(type, name), page_size=page_size, page_token=token)
            page = await self.stub.ListRevisions(request, metadata=self.metadata, timeout=SECONDS)
            found.extend(page.revisions)
            token = page.next_page_token
            if not token:
                return found

    async def apply(self, files: Mapping[str, str | bytes], **more: Any) -> pb.ApplySetResponse:
        """Applies a set of files, path to content."""
        sent = [
            set_pb2.SetFile(path=path, content=content.encode() if isinstance(content, str) else content)
            for path, content in files.items()
        ]
        return await self.apply_files(sent, **more)

    async def apply_files(self, sent: Sequence[set_pb2.SetFile], **more: Any) -> pb.ApplySetResponse:
        """Applies files that may say layers."""
        request = pb.ApplySetRequest(request_id=fresh_id(), files=sent, **more)
        return await self.stub.ApplySet(request, metadata=self.metadata, timeout=SECONDS)

    def watch(
        self, filters: Sequence[watch_pb2.WatchFilter] = (), after: int | None = None, metadata: Metadata | None = None
    ) -> "Watch":
        """Opens a watch."""
        request = pb.WatchRequest(filters=filters, after_revision=after)
        return Watch(self.stub.Watch(request, metadata=metadata or self.metadata, timeout=120))


class Watch:
    """A watch that a test reads."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.revision = 0
        """Where the last frame says to resume."""

    async def frame(self) -> pb.WatchResponse:
        """The next frame. Raises grpc.aio.AioRpcError."""
        frame = await self.call.read()
        if frame is grpc.aio.EOF:
            # The status says why; read() alone would not.
            raise AssertionError(f"the watch ended with {await self.call.code()}")
        self.revision = frame.revision
        return frame

    async def changes(self, count: int) -> list[watch_pb2.EntityChange]:
        """Reads until there are this many changes, past marks."""
        found: list[watch_pb2.EntityChange] = []
        while len(found) < count:
            found.extend((await self.frame()).changes.changes)
        assert len(found) == count, found
        return found

    async def snapshot(self) -> list[watch_pb2.EntityChange]:
        """Reads the snapshot, up to its mark."""
        found: list[watch_pb2.EntityChange] = []
        while True:
            frame = await self.frame()
            if frame.HasField("synced"):
                return found
            assert frame.HasField("changes"), frame
            assert frame.revision == 0
            found.extend(frame.changes.changes)

    async def end(self) -> grpc.aio.AioRpcError:
        """Reads until the watch ends with an error, and gives that."""
        try:
            while await self.call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error
        raise AssertionError("the watch ended without an error")

    async def refused(self) -> ErrorDetails:
        """The details of the error that it ends with."""
        return error_details(await self.end())

    def cancel(self) -> None:
        """Leaves."""
        self.call.cancel()


class Server:
    """A config server alone."""

    def __init__(self, host: Any, channel: grpc.aio.Channel) -> None:
        self.host = host
        self.channel = channel

    def caller(self, **values: str) -> Caller:
        """Calls it in a scope; without values in one of its own."""
        return Caller(self.channel, values or {"tenant": fresh_id("tenant")})

    @property
    def calls(self) -> float:
        """How many calls it got so far, those under way too."""
        names = ("threadkeep_rpcs", "threadkeep_rpcs_open")
        families = [family for family in self.host.registry.collect() if family.name in names]
        return sum(sample.value for family in families for sample in family.samples if "created" not in sample.name)

    def metric(self, name: str) -> float:
        """The value of one of its metrics."""
        return self.host.registry.get_sample_value(name) or 0.0


@asynccontextmanager
async def config_server(url: str, *, listen: str = "127.0.0.1:0", **settings: Any) -> AsyncIterator[Server]:
    """Serves config on a database that is at head (`memory:` needs none)."""
    from threadkeep_chassis.hosting import Host
    from threadkeep_config.server import build
    from threadkeep_config.settings import ConfigSettings

    host = Host([build(ConfigSettings(database_url=url, **settings))], listen=listen)
    await host.start()
    channel = grpc.aio.insecure_channel(host.address, options=[("grpc.use_local_subchannel_pool", 1)])
    try:
        yield Server(host, channel)
    finally:
        await host.stop(1.0)
        await channel.close()


@asynccontextmanager
async def config_server_on(databases: Any, backend: str, **settings: Any) -> AsyncIterator[Server]:
    """The same on a new database."""
    url = await config_database(databases, backend)
    async with config_server(url, **settings) as server:
        yield server
    await databases.drop(url)


async def config_database(databases: Any, backend: str) -> str:
    """The address of a new config database at head."""
    if backend == "postgres":
        return await databases.migrated("config", lambda url: migrate_one(url, "config"))
    url = await databases.empty(backend)
    if backend == "sqlite":
        await migrate_one(url, "config")
    return url
