"""The classes that a graph's own schemas name, which its checkpoints may therefore build."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langgraph.pregel import Pregel

from threadkeep.langgraph.serde import AllowedType


def state_types(graph: Pregel) -> Iterable[AllowedType]:
    """Models, dataclasses and enums in the schemas of a compiled StateGraph and of its subgraphs."""
    found: set[tuple[str, ...]] = set()
    for one in (graph, *(subgraph for _, subgraph in graph.get_subgraphs(recurse=True))):
        found |= _of(one)
    return found


def _of(graph: Any) -> set[tuple[str, ...]]:
    builder = getattr(graph, "builder", None)
    if builder is None:
        return set()
    # LangGraph collects them itself when LANGGRAPH_STRICT_MSGPACK is set, and offers no public way to ask.
    from langgraph._internal._serde import collect_allowlist_from_schemas

    schemas = [builder.state_schema, builder.input_schema, builder.output_schema]
    schemas += [node.input_schema for node in builder.nodes.values()]
    known = [schema for schema in schemas if isinstance(schema, type)]
    return collect_allowlist_from_schemas(schemas=known, channels=dict(builder.channels))
