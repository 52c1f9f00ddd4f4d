"""JSON schemas that come with definitions: are they schemas at all. What is wrong is told without quoting them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import exceptions, validators

from threadkeep_chassis.bounded_schemas import unbounded_part

_LATEST = "https://json-schema.org/draft/2020-12/schema"
_DRAFTS = {
    "http://json-schema.org/draft-04/schema": validators.Draft4Validator,
    "http://json-schema.org/draft-06/schema": validators.Draft6Validator,
    "http://json-schema.org/draft-07/schema": validators.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": validators.Draft201909Validator,
    _LATEST: validators.Draft202012Validator,
}


def schema_fault(schema: Mapping[str, Any]) -> str | None:
    """What is wrong with a JSON schema, without quoting it; None if nothing is. Without `$schema`: draft 2020-12."""
    named = schema.get("$schema", _LATEST)
    draft = _DRAFTS.get(named.removesuffix("#")) if isinstance(named, str) else None
    if draft is None:
        return "$schema names no known draft"
    try:
        draft.check_schema(schema)
    except exceptions.SchemaError as error:
        return f"{error.json_path} breaks `{error.validator}`"
    except RecursionError:
        return "is nested too deep"
    return None


def bounded_schema_fault(schema: Any) -> str | None:
    """The same of a schema that documents are to be held against here: of the latest draft, at a bounded cost."""
    if not isinstance(schema, dict | bool):
        return "is neither an object nor true or false"
    if isinstance(schema, dict):
        named = schema.get("$schema", _LATEST)
        if not isinstance(named, str) or named.removesuffix("#") != _LATEST:
            return "$schema names another draft than 2020-12"
        fault = schema_fault(schema)
        if fault is not None:
            return fault
    return unbounded_part(schema)
