"""Resolution in the client is the server's (C2, C3): generated scopes, precedences and entities, one answer."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep._config_view import ConfigView, scope_id
from threadkeep.config.v1 import config_service_pb2, entity_pb2, watch_pb2
from threadkeep_chassis.scope import Scope
from threadkeep_config import wire
from threadkeep_config.domain.resolution import Precedence
from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key, Source, SourceKind
from threadkeep_config.store.counting import counting
from threadkeep_config.store.scopes import Views

KEYS = ("a", "b", "c", "d")
SCOPES = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["1", "2"]), max_size=4)
TYPES = st.sampled_from([EntityType.TOOL, EntityType.AGENT, EntityType.DEFAULTS])
FILE = Source(SourceKind.FILE, "x.yaml")


def body(type: EntityType, text: str, fields: frozenset[str]) -> entity_pb2.Definition:
    """A definition; of Defaults with these fields."""
    if type is EntityType.TOOL:
        python = entity_pb2.PythonEntryPoint(entry_point="a:b")
        return entity_pb2.Definition(tool=entity_pb2.Tool(description=text, python=python))
    if type is EntityType.AGENT:
        return entity_pb2.Definition(agent=entity_pb2.Agent(description=text))
    definition = entity_pb2.Definition()
    definition.defaults.SetInParent()
    if "model" in fields:
        definition.defaults.model = text
    if "tools" in fields:
        definition.defaults.tools.values.append(text)
    if "none" in fields:
        definition.defaults.skills.SetInParent()
    return definition


ENTITIES = st.lists(
    st.tuples(
        SCOPES,
        TYPES,
        st.booleans(),
        st.booleans(),
        st.frozensets(st.sampled_from(["model", "tools", "none"])),
    ),
    max_size=10,
    unique_by=lambda one: (tuple(sorted(one[0].items())), one[1]),
)


@pytest.mark.rule("C2", "C3")
@pytest.mark.case("B84", "B85")
@given(SCOPES, st.permutations(KEYS), st.integers(0, 4), ENTITIES, TYPES)
def test_the_client_resolves_as_the_server_does(
    scope: dict[str, str],
    order: list[str],
    declared: int,
    made: list[tuple[dict[str, str], EntityType, bool, bool, frozenset[str]]],
    type: EntityType,
) -> None:
    precedence = tuple(order[:declared])
    now = datetime.now(UTC)
    entities = []
    for number, (at, kind, is_file, is_hidden, fields) in enumerate(made, 1):
        source = FILE if is_file else API
        content = Content(source, hidden=True)
        if not is_hidden:
            content = wire.content_from(kind, body(kind, f"text {number}", fields), source, "")
        where = Scope(at)
        key = Key(kind, "x", where.key)
        entities.append(Entity(key, where.canonical.decode(), content, number, False, now, now))

    view = Views(Precedence(precedence)).inherited(Scope(scope))
    expected = counting(view.ordered([one for one in entities if one.key.type is type]))

    client = ConfigView()
    client.scope, client.precedence = scope_id(scope), precedence
    client.begin_snapshot()
    changes = [watch_pb2.EntityChange(entity=wire.entity_to(one)) for one in entities if view.sees(one)]
    client.apply(config_service_pb2.WatchResponse(changes=watch_pb2.EntityChanges(changes=changes)))
    assert client.resolve(int(type), "x") is None, "nothing counts before the snapshot is complete"
    client.apply(config_service_pb2.WatchResponse(synced=watch_pb2.Synced(), revision=99))
    found = client.resolve(int(type), "x")
    if expected is None:
        assert found is None
        return
    assert found is not None
    server = wire.entity_to(expected)
    if type is EntityType.DEFAULTS:
        server.digest = found.digest or server.digest
        server.digest, found.digest = "", ""
    assert found == server


def test_changes_are_told_with_what_was_before() -> None:
    view = ConfigView()
    view.begin_snapshot()
    one = entity_pb2.Entity(type=entity_pb2.ENTITY_TYPE_TOOL, name="x", revision=1)

    def frame(*entities: entity_pb2.Entity, revision: int) -> config_service_pb2.WatchResponse:
        changes = watch_pb2.EntityChanges(changes=[watch_pb2.EntityChange(entity=entity) for entity in entities])
        return config_service_pb2.WatchResponse(changes=changes, revision=revision)

    synced = config_service_pb2.WatchResponse(synced=watch_pb2.Synced(), revision=1)
    assert view.apply(frame(one, revision=0)) == []
    assert [(change.before, change.after) for change in view.apply(synced)] == [(None, one)]
    two = entity_pb2.Entity(type=entity_pb2.ENTITY_TYPE_TOOL, name="x", revision=2)
    gone = entity_pb2.Entity(type=entity_pb2.ENTITY_TYPE_TOOL, name="x", revision=3, deleted=True)
    told = view.apply(frame(two, gone, revision=3))
    assert [(change.before, change.after) for change in told] == [(one, two), (two, None)]
    assert view.apply(frame(gone, revision=4)) == []
    view.begin_snapshot()
    view.apply(frame(one, revision=0))
    assert view.resolve(entity_pb2.ENTITY_TYPE_TOOL, "x") is None
    assert [change.after for change in view.apply(synced)] == [one]
    view.begin_snapshot()
    assert [change.after for change in view.apply(synced)] == [None], "what a new snapshot lacks is gone"
