"""Config: definitions of agents, and of what they work with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from threadkeep._api.values import given
from threadkeep._errors import ThreadkeepError
from threadkeep._rpc.method import Call, Feed, PagedCall, method, new_request_id, whole
from threadkeep.common.v1 import payload_pb2
from threadkeep.config.v1 import config_service_pb2, definition_pb2, entity_pb2, set_pb2, watch_pb2
from threadkeep.config.v1.entity_pb2 import Entity, EntityType

_PUT = method(config_service_pb2, "ConfigService", "PutEntity")
_GET = method(config_service_pb2, "ConfigService", "GetEntity")
_LIST = method(config_service_pb2, "ConfigService", "ListEntities")
_DELETE = method(config_service_pb2, "ConfigService", "DeleteEntity")
_RESOLVE = method(config_service_pb2, "ConfigService", "Resolve")
_RESOLVE_MANY = method(config_service_pb2, "ConfigService", "ResolveMany")
_EXPLAIN = method(config_service_pb2, "ConfigService", "Explain")
_MANIFEST = method(config_service_pb2, "ConfigService", "ResolveManifest")
_REVISIONS = method(config_service_pb2, "ConfigService", "ListRevisions")
_DIFF = method(config_service_pb2, "ConfigService", "DiffRevisions")
_ROLLBACK = method(config_service_pb2, "ConfigService", "Rollback")
_APPLY = method(config_service_pb2, "ConfigService", "ApplySet")
_EXPORT = method(config_service_pb2, "ConfigService", "ExportSet")
_WATCH = method(config_service_pb2, "ConfigService", "Watch")

_TYPES: Mapping[str, EntityType.ValueType] = {
    name.removeprefix("ENTITY_TYPE_").lower(): number for name, number in EntityType.items() if number
}
_FIELDS = {
    one.message_type.full_name: one.name
    for one in entity_pb2.Definition.DESCRIPTOR.fields
    if one.message_type is not None
}

Type: TypeAlias = "str | EntityType.ValueType"
"""An entity type: `provider`, `tool`, `agent`, `skill`, `mcp_server`, `sandbox_profile`, `defaults`, `custom`,
`custom_schema`, or the contract's enum value."""
Body = (
    entity_pb2.Provider
    | entity_pb2.Tool
    | entity_pb2.Agent
    | definition_pb2.Skill
    | definition_pb2.McpServer
    | definition_pb2.SandboxProfile
    | definition_pb2.Defaults
    | definition_pb2.Custom
    | definition_pb2.CustomSchema
)


Exported: TypeAlias = "set_pb2.SetFile | set_pb2.SetProblem"


def to_type(value: Type) -> EntityType.ValueType:
    """The enum value of a type's name."""
    if not isinstance(value, str):
        return value
    try:
        return _TYPES[value]
    except KeyError:
        raise ValueError(f"unknown entity type {value!r}; there are {sorted(_TYPES)}") from None


def _key(type: Type, name: str, target_scope: Mapping[str, str] | None) -> config_service_pb2.EntityKey:
    scope = None if target_scope is None else payload_pb2.Scope(values=dict(target_scope))
    return config_service_pb2.EntityKey(type=to_type(type), name=name, **given(target_scope=scope))


def put(
    name: str,
    definition: Body,
    *,
    expected_revision: int | None = None,
    target_scope: Mapping[str, str] | None = None,
    request_id: str | None = None,
) -> Call[config_service_pb2.PutEntityResponse]:
    """Creates or replaces the entity that `definition` (such as an Agent message) defines; gives `entity` and
    `changed`. `expected_revision` 0: it must not exist. Raises RevisionConflict, FileManaged, ScopeForbidden."""
    return Call(_PUT, _put_request(name, definition, expected_revision, target_scope, request_id), whole)


def update(
    name: str,
    definition: Body,
    fields: Iterable[str],
    *,
    expected_revision: int | None = None,
    target_scope: Mapping[str, str] | None = None,
    request_id: str | None = None,
) -> Call[config_service_pb2.PutEntityResponse]:
    """Writes only these fields (`system_prompt`, `http.url`) of an entity that is there, as `definition` has them;
    gives `entity` and `changed`. Raises EntityNotFound, RevisionConflict, FileManaged, ScopeForbidden."""
    request = _put_request(name, definition, expected_revision, target_scope, request_id)
    request.update_mask.paths.extend(fields)
    # An empty mask is one too: the server says what is wrong with it.
    request.update_mask.SetInParent()
    return Call(_PUT, request, whole)


def _put_request(
    name: str,
    definition: Body,
    expected_revision: int | None,
    target_scope: Mapping[str, str] | None,
    request_id: str | None,
) -> config_service_pb2.PutEntityRequest:
    kind = _FIELDS[definition.DESCRIPTOR.full_name]
    wrapped = entity_pb2.Definition()
    getattr(wrapped, kind).CopyFrom(definition)
    # A message without fields is a definition too.
    getattr(wrapped, kind).SetInParent()
    return config_service_pb2.PutEntityRequest(
        request_id=request_id or new_request_id(),
        key=_key(kind, name, target_scope),
        definition=wrapped,
        **given(expected_revision=expected_revision),
    )


def hide(
    type: Type,
    name: str,
    *,
    expected_revision: int | None = None,
    target_scope: Mapping[str, str] | None = None,
    request_id: str | None = None,
) -> Call[config_service_pb2.PutEntityResponse]:
    """Hides what the scope would inherit under this name. Raises RevisionConflict, FileManaged, ScopeForbidden."""
    request = config_service_pb2.PutEntityRequest(
        request_id=request_id or new_request_id(),
        key=_key(type, name, target_scope),
        hidden=True,
        **given(expected_revision=expected_revision),
    )
    return Call(_PUT, request, whole)


def get(type: Type, name: str, *, target_scope: Mapping[str, str] | None = None) -> Call[Entity]:
    """Reads the entity of exactly this scope. Raises EntityNotFound."""
    request = config_service_pb2.GetEntityRequest(key=_key(type, name, target_scope))
    return Call(_GET, request, lambda response: response.entity)


def list(*, types: Sequence[Type] = (), include_inherited: bool = False, page_size: int = 0) -> PagedCall[Entity]:
    """Entities by type, name and scope: those of exactly this scope, or all that it can see."""
    request = config_service_pb2.ListEntitiesRequest(
        page_size=page_size, types=[to_type(one) for one in types], include_inherited=include_inherited
    )
    return PagedCall(Call(_LIST, request, whole), lambda page: page.entities)


def delete(
    type: Type,
    name: str,
    *,
    expected_revision: int | None = None,
    target_scope: Mapping[str, str] | None = None,
    request_id: str | None = None,
) -> Call[Entity]:
    """Deletes the entity of exactly this scope; gives its tombstone. Raises EntityNotFound, RevisionConflict,
    FileManaged, ScopeForbidden."""
    request = config_service_pb2.DeleteEntityRequest(
        request_id=request_id or new_request_id(),
        key=_key(type, name, target_scope),
        **given(expected_revision=expected_revision),
    )
    return Call(_DELETE, request, lambda response: response.entity)


def resolve(type: Type, name: str) -> Call[Entity]:
    """The entity that counts in the scope. Raises EntityNotFound."""
    request = config_service_pb2.ResolveRequest(type=to_type(type), name=name)
    return Call(_RESOLVE, request, lambda response: response.entity)


def resolve_many(references: Iterable[tuple[Type, str]]) -> Call[Sequence[Entity | None]]:
    """The entities that count for several (type, name), in their order, as of one revision; None where none counts."""
    wanted = [config_service_pb2.EntityReference(type=to_type(type), name=name) for type, name in references]
    request = config_service_pb2.ResolveManyRequest(references=wanted)
    return Call(
        _RESOLVE_MANY,
        request,
        lambda response: [one.entity if one.HasField("entity") else None for one in response.resolutions],
    )


def explain(type: Type, name: str) -> Call[config_service_pb2.ExplainResponse]:
    """Every candidate in order, and why the winner won."""
    return Call(_EXPLAIN, config_service_pb2.ExplainRequest(type=to_type(type), name=name), whole)


def resolve_manifest(agent_name: str) -> Call[config_service_pb2.ResolveManifestResponse]:
    """An agent with all that it depends on, pinned. Raises AgentUnresolved."""
    return Call(_MANIFEST, config_service_pb2.ResolveManifestRequest(agent_name=agent_name), whole)


def list_revisions(
    type: Type, name: str, *, target_scope: Mapping[str, str] | None = None, page_size: int = 0
) -> PagedCall[Entity]:
    """An entity at each of its revisions, newest first, tombstones too. Raises EntityNotFound."""
    request = config_service_pb2.ListRevisionsRequest(key=_key(type, name, target_scope), page_size=page_size)
    return PagedCall(Call(_REVISIONS, request, whole), lambda page: page.revisions)


def diff_revisions(
    type: Type,
    name: str,
    from_revision: int,
    to_revision: int = 0,
    *,
    target_scope: Mapping[str, str] | None = None,
) -> Call[Sequence[entity_pb2.FieldChange]]:
    """The fields that changed between two revisions; `to_revision` 0 is the current one. Raises EntityNotFound."""
    request = config_service_pb2.DiffRevisionsRequest(
        key=_key(type, name, target_scope), from_revision=from_revision, to_revision=to_revision
    )
    return Call(_DIFF, request, lambda response: response.changes)


def rollback(
    type: Type,
    name: str,
    to_revision: int,
    *,
    expected_revision: int | None = None,
    target_scope: Mapping[str, str] | None = None,
    request_id: str | None = None,
) -> Call[config_service_pb2.RollbackResponse]:
    """Writes an older revision's content again, as a new revision. Raises EntityNotFound, RevisionConflict,
    FileManaged, ScopeForbidden."""
    request = config_service_pb2.RollbackRequest(
        request_id=request_id or new_request_id(),
        key=_key(type, name, target_scope),
        to_revision=to_revision,
        **given(expected_revision=expected_revision),
    )
    return Call(_ROLLBACK, request, whole)


def apply_set(
    files: Mapping[str, bytes] | Iterable[set_pb2.SetFile],
    *,
    dry_run: bool = False,
    keep_missing: bool = False,
    with_fields: bool = False,
    request_id: str | None = None,
) -> Call[config_service_pb2.ApplySetResponse]:
    """Applies files (path to content) as one set in the scope; gives `changes`, `problems` and `config_revision`.

    `keep_missing`: what is not in the set stays. `with_fields`: changes say which fields change. `SetFile` messages may
    say layers; `threadkeep.config_files.read_directories` makes them from directories.
    """
    if isinstance(files, Mapping):
        files = [set_pb2.SetFile(path=path, content=content) for path, content in sorted(files.items())]
    request = config_service_pb2.ApplySetRequest(
        request_id=request_id or new_request_id(),
        files=files,
        dry_run=dry_run,
        keep_missing=keep_missing,
        with_fields=with_fields,
    )
    return Call(_APPLY, request, whole)


def export_set(*, types: Sequence[Type] = (), page_size: int = 0) -> PagedCall[Exported]:
    """The entities of exactly this scope as files that `apply_set` would make them from (`SetFile`), and problems
    (`SetProblem`) for those that no file can hold."""
    request = config_service_pb2.ExportSetRequest(page_size=page_size, types=[to_type(one) for one in types])
    return PagedCall(Call(_EXPORT, request, whole), lambda page: [*page.files, *page.problems])


def watch(
    filters: Sequence[watch_pb2.WatchFilter] = (), *, after_revision: int | None = None
) -> Feed[config_service_pb2.WatchResponse, int]:
    """Frames with changes, each once and in order: after a revision, or a snapshot, a `synced` frame, then changes.

    It goes on by itself after a broken connection; a snapshot that broke starts again. Raises RevisionCompacted.
    """
    request = config_service_pb2.WatchRequest(filters=filters, **given(after_revision=after_revision))
    return Feed(Call(_WATCH, request, whole), _frames, _resume, _point)


def _frames(
    frame: config_service_pb2.WatchResponse,
) -> Iterator[tuple[config_service_pb2.WatchResponse | None, int | None]]:
    bookmark = frame.WhichOneof("frame") in ("bookmark", None)
    yield (None if bookmark else frame), frame.revision or None


def _resume(request: Any, revision: int) -> None:
    request.after_revision = revision


def _point(error: ThreadkeepError) -> int | None:
    return error.resume_revision
