"""Documents against the schemas that are registered for them (C1): the one that counts in their scope decides."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from threadkeep_chassis.bounded_schemas import TooCostly, first_error
from threadkeep_chassis.canonical import parse_json
from threadkeep_chassis.database import Connection
from threadkeep_config.domain.manifest import Reference
from threadkeep_config.domain.values import Content, Entity, EntityType
from threadkeep_config.domain.views import View
from threadkeep_config.store.candidates import read_candidates
from threadkeep_config.store.counting import counting

Fault = tuple[str, str]
"""(path of the field, such as `custom.document_json`, and the rule that it breaks)."""


class Documents:
    """Finds the schema of a document, and holds one against the other."""

    async def fault(self, connection: Connection, view: View, content: Content) -> Fault | None:
        """What is wrong with a document that is to be put into the view's own scope, or None."""
        body = _body(content)
        schema = (await self._schemas(connection, view, [body["schema"]], set())).get(body["schema"])
        return document_fault(body, schema)

    async def faults_of_set(
        self,
        connection: Connection,
        view: View,
        contents: Mapping[Reference, Content],
        broken: Set[Reference],
    ) -> dict[Reference, Fault]:
        """What is wrong with the documents of a set, whose own schemas count as they will once it is applied."""
        documents = {one: _body(content) for one, content in contents.items() if one[0] is EntityType.CUSTOM}
        documents = {one: body for one, body in documents.items() if body}
        if not documents:
            return {}
        schemas = await self._schemas(
            connection, view, {body["schema"] for body in documents.values()}, broken, contents
        )
        faults = {one: document_fault(body, schemas.get(body["schema"])) for one, body in documents.items()}
        return {one: fault for one, fault in faults.items() if fault is not None}

    async def _schemas(
        self,
        connection: Connection,
        view: View,
        names: Any,
        broken: Set[Reference],
        contents: Mapping[Reference, Content] | None = None,
    ) -> dict[str, Any]:
        """The schemas that count, by name. With `contents`, after the files of the view's own scope were replaced."""
        references = [(EntityType.CUSTOM_SCHEMA, name) for name in names]
        _, found = await read_candidates(connection, references, view.scope_keys or ())
        schemas = {}
        for reference in references:
            candidates = view.ordered(found.get(reference, ()))
            own = candidates[0] if candidates and candidates[0].key.scope_key == view.own_key else None
            text: str | None = None
            if contents is not None and reference not in broken and (own is None or own.content.source.is_file):
                # A file takes the own place, or leaves it.
                candidates = candidates[1:] if own is not None else candidates
                if reference in contents:
                    text = contents[reference].definition
            if text is None:
                text = _definition(counting(candidates))
            if text:
                schemas[reference[1]] = parse_json(parse_json(text)["custom_schema"]["schema_json"])
        return schemas


def document_fault(body: Mapping[str, Any], schema: Any) -> Fault | None:
    """What is wrong with a document, without quoting it (X11). `schema` None: there is none."""
    if schema is None:
        return "custom.schema", "names no CustomSchema that counts in this scope"
    try:
        error = first_error(schema, parse_json(body["document_json"]))
    except TooCostly:
        return "custom.document_json", "takes too many steps to hold against its schema; make it smaller"
    except Exception:  # a reference that leads nowhere, or in circles
        return "custom.document_json", "can't be held against its schema"
    if error is None:
        return None
    return "custom.document_json", f"must match its schema: {error.json_path} breaks {error.validator}"


def _body(content: Content) -> dict[str, Any]:
    body: dict[str, Any] = parse_json(content.definition)["custom"] if content.definition else {}
    return body


def _definition(entity: Entity | None) -> str:
    return entity.content.definition if entity is not None else ""
