"""Example requests of the config service. Records here are named, not numbered: a name is what a request refers by."""

from tests.support.descriptors import fresh_id
from tests.support.examples.registry import register
from tests.support.examples.world import World, agent_definition, agent_key
from threadkeep.config.v1 import config_service_pb2 as pb
from threadkeep.config.v1 import entity_pb2, set_pb2, watch_pb2


async def _two_revisions(world: World) -> tuple[str, int, int]:
    name = fresh_id("agent")
    first = await world.put_entity(agent_key(name), agent_definition("first"))
    second = await world.put_entity(agent_key(name), agent_definition("second"))
    return name, first.revision, second.revision


@register("ConfigService.PutEntity", "key.name")
async def put_entity(world: World) -> pb.PutEntityRequest:
    key = agent_key(await world.agent())
    return pb.PutEntityRequest(request_id=fresh_id(), key=key, definition=agent_definition("changed"))


@register("ConfigService.GetEntity", "key.name")
async def get_entity(world: World) -> pb.GetEntityRequest:
    return pb.GetEntityRequest(key=agent_key(await world.agent()))


@register("ConfigService.ListEntities")
async def list_entities(world: World) -> pb.ListEntitiesRequest:
    await world.agent()
    return pb.ListEntitiesRequest(types=[entity_pb2.ENTITY_TYPE_AGENT], include_inherited=True)


@register("ConfigService.DeleteEntity", "key.name")
async def delete_entity(world: World) -> pb.DeleteEntityRequest:
    return pb.DeleteEntityRequest(request_id=fresh_id(), key=agent_key(await world.agent()))


@register("ConfigService.Resolve", "name")
async def resolve(world: World) -> pb.ResolveRequest:
    return pb.ResolveRequest(type=entity_pb2.ENTITY_TYPE_AGENT, name=await world.agent())


@register("ConfigService.ResolveMany", "references[0].name")
async def resolve_many(world: World) -> pb.ResolveManyRequest:
    reference = pb.EntityReference(type=entity_pb2.ENTITY_TYPE_AGENT, name=await world.agent())
    return pb.ResolveManyRequest(references=[reference])


@register("ConfigService.Explain", "name")
async def explain(world: World) -> pb.ExplainRequest:
    return pb.ExplainRequest(type=entity_pb2.ENTITY_TYPE_AGENT, name=await world.agent())


@register("ConfigService.ResolveManifest", "agent_name")
async def resolve_manifest(world: World) -> pb.ResolveManifestRequest:
    return pb.ResolveManifestRequest(agent_name=await world.agent())


@register("ConfigService.ListRevisions", "key.name")
async def list_revisions(world: World) -> pb.ListRevisionsRequest:
    name, _, _ = await _two_revisions(world)
    return pb.ListRevisionsRequest(key=agent_key(name))


@register("ConfigService.DiffRevisions", "key.name")
async def diff_revisions(world: World) -> pb.DiffRevisionsRequest:
    name, first, second = await _two_revisions(world)
    return pb.DiffRevisionsRequest(key=agent_key(name), from_revision=first, to_revision=second)


@register("ConfigService.Rollback", "key.name")
async def rollback(world: World) -> pb.RollbackRequest:
    name, first, _ = await _two_revisions(world)
    return pb.RollbackRequest(request_id=fresh_id(), key=agent_key(name), to_revision=first)


@register("ConfigService.ApplySet")
async def apply_set(world: World) -> pb.ApplySetRequest:
    content = b"description: Tells the time\npython:\n  entry_point: tools.time:clock\n"
    return pb.ApplySetRequest(request_id=fresh_id(), files=[set_pb2.SetFile(path="tools/clock.yaml", content=content)])


@register("ConfigService.ExportSet")
async def export_set(world: World) -> pb.ExportSetRequest:
    await world.agent()
    return pb.ExportSetRequest(types=[entity_pb2.ENTITY_TYPE_AGENT])


@register("ConfigService.Watch", "filters[0].names[0]", frames=1)
async def watch(world: World) -> pb.WatchRequest:
    watched = watch_pb2.WatchFilter(filter_id=fresh_id("filter"), names=[await world.agent()])
    return pb.WatchRequest(filters=[watched])
