"""Statements that are compiled once and then go straight to the driver.

SQLAlchemy derives a cache key, a context and a cursor for each execution, which costs several times what the driver
needs. A statement object that is executed a second time (a module's constant) gets a plan: its SQL text, the order of
its parameters, and the processors of its types. What a plan can't do goes through SQLAlchemy as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.engine import Dialect, Result
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData
from sqlalchemy.sql import ClauseElement, Executable, visitors
from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler
from sqlalchemy.sql.dml import UpdateBase

Parameters = Mapping[str, Any]
Processor = Callable[[Any], Any]

# Who sends long lists pads them to powers of two; who does not fills this, and is not planned further.
_MAX_PLANS_PER_SHAPE = 64
_MAX_SHAPES = 32


class Plan:
    """One SQL text, and how parameters become its arguments and rows become a result."""

    __slots__ = ("_arguments", "_metadata", "_row_processors", "returns_rows", "sql", "tables")

    def __init__(
        self,
        sql: str,
        arguments: Sequence[tuple[str, int, int, Processor | None, Any]],
        metadata: SimpleResultMetaData | None,
        row_processors: Sequence[Processor | None],
        tables: frozenset[str],
    ) -> None:
        """`arguments`: (parameter, index in its list or -1, index in the tuple there or -1, processor, constant)."""
        self.sql = sql
        self.tables = tables
        """What the statement reads or writes."""
        self.returns_rows = metadata is not None
        self._arguments = arguments
        self._metadata = metadata
        self._row_processors = tuple(row_processors) if any(row_processors) else None

    def arguments(self, parameters: Parameters) -> list[Any]:
        """The driver's positional arguments."""
        found = []
        for name, index, part, process, constant in self._arguments:
            if not name:
                found.append(constant)
                continue
            value = parameters[name]
            if index >= 0:
                value = value[index]
                if part >= 0:
                    value = value[part]
            found.append(value if process is None else process(value))
        return found

    def result(self, rows: Iterable[Sequence[Any]]) -> Result[Any]:
        """A buffered result over the driver's rows."""
        assert self._metadata is not None
        return IteratorResult(self._metadata, self._processed(rows))

    def _processed(self, rows: Iterable[Sequence[Any]]) -> Iterator[Any]:
        if self._row_processors is None:
            return iter([tuple(row) for row in rows])
        processors = self._row_processors
        return iter(
            [
                tuple(
                    [
                        value if process is None else process(value)
                        for value, process in zip(row, processors, strict=True)
                    ]
                )
                for row in rows
            ]
        )


class Written:
    """The result of a statement that returns no rows."""

    __slots__ = ("rowcount",)
    returns_rows = False

    def __init__(self, rowcount: int) -> None:
        self.rowcount = rowcount


class _Shape:
    """A statement compiled for one set of parameter names."""

    def __init__(self, statement: ClauseElement, dialect: Dialect, names: tuple[str, ...] | None) -> None:
        compiled: Any = statement.compile(dialect=dialect, column_keys=None if names is None else list(names))
        self.usable = isinstance(compiled, SQLCompiler) and compiled.positional and not _needs_context(compiled)
        self._compiled: Any = compiled
        self._dialect = dialect
        self._tables = frozenset(each.name for each in visitors.iterate(statement) if isinstance(each, sa.Table))
        self._names = frozenset(names or ())
        self.plans: dict[tuple[int, ...], Plan] = {}
        if self.usable:
            self._lists = tuple(
                bind.key for bind in compiled.binds.values() if bind.expanding and bind.key in self._names
            )
            required = {key for key, bind in compiled.binds.items() if bind.required}
            # A list that is part of the statement differs from one statement to the next.
            self.usable = required <= self._names and not any(
                (bind.expanding or bind.callable is not None) and bind.key not in self._names
                for bind in compiled.binds.values()
            )

    def plan(self, parameters: Parameters) -> Plan | None:
        """The plan for lists of these lengths; None if there is none."""
        lengths = tuple([len(parameters[name]) for name in self._lists]) if self._lists else ()
        plan = self.plans.get(lengths)
        if plan is None and 0 not in lengths and len(self.plans) < _MAX_PLANS_PER_SHAPE:
            plan = self.plans[lengths] = self._make(parameters)
        return plan

    def _make(self, parameters: Parameters) -> Plan:
        state: ExpandedState = self._compiled.construct_expanded_state(dict(parameters))
        places: dict[str, tuple[str, int, int]] = {}
        for name, expanded in state.parameter_expansion.items():
            first = parameters[name][0]
            width = len(first) if isinstance(first, tuple) else 0
            for place, each in enumerate(expanded):
                places[each] = (name, *divmod(place, width)) if width else (name, place, -1)
        processors: dict[str, Processor] = {**self._compiled._bind_processors, **state.processors}
        arguments: list[tuple[str, int, int, Processor | None, Any]] = []
        for each in state.positiontup or ():
            process = processors.get(each)
            if each in places:
                arguments.append((*places[each], process, None))
            elif each in self._names:
                arguments.append((each, -1, -1, process, None))
            else:
                value = state.parameters[each]
                arguments.append(("", -1, -1, None, value if process is None else process(value)))
        columns = self._compiled._result_columns
        if not columns:
            return Plan(state.statement, arguments, None, (), self._tables)
        metadata = SimpleResultMetaData([column.keyname for column in columns])
        row_processors = [_row_processor(column.type, self._dialect) for column in columns]
        return Plan(state.statement, arguments, metadata, row_processors, self._tables)


def _row_processor(type_: Any, dialect: Dialect) -> Processor | None:
    # What SQLAlchemy does with numbers depends on the driver's type codes; both drivers give floats as floats.
    if isinstance(type_, sa.Float) and not type_.asdecimal:
        return None
    found: Processor | None = type_._cached_result_processor(dialect, None)
    return found


def _needs_context(compiled: SQLCompiler) -> bool:
    """True if SQLAlchemy computes values at each execution: defaults of columns in Python, names that it escapes."""
    return bool(
        compiled.escaped_bind_names
        or getattr(compiled, "insert_prefetch", ())
        or getattr(compiled, "update_prefetch", ())
        or compiled.literal_execute_params
        or any(_is_decimal(column.type) for column in compiled._result_columns)
    )


def _is_decimal(type_: Any) -> bool:
    return isinstance(type_, sa.Numeric) and type_.asdecimal


class Plans:
    """The plans of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._known: WeakKeyDictionary[Executable, dict[tuple[str, ...] | None, _Shape]] = WeakKeyDictionary()

    def __len__(self) -> int:
        """How many statements are known."""
        return len(self._known)

    def size(self, statement: Executable) -> int:
        """How many plans a statement has: one for each set of parameter names and lengths of lists."""
        return sum(len(shape.plans) for shape in self._known.get(statement, {}).values())

    def find(self, statement: Executable, parameters: Any) -> tuple[Plan, Parameters | Sequence[Parameters]] | None:
        """The plan of a statement that was seen before, and its parameters; several sets only for plain writes."""
        shapes = self._known.get(statement)
        if shapes is None:
            self._known[statement] = {}
            return None
        many = isinstance(parameters, (list, tuple))
        if many and len(parameters) == 1:
            parameters, many = parameters[0], False
        if many and not (parameters and isinstance(statement, UpdateBase)):
            return None
        first: Parameters = (parameters[0] if many else parameters) or {}
        names = tuple(first)
        shape = shapes.get(names)
        if shape is None:
            if len(shapes) >= _MAX_SHAPES or not isinstance(statement, ClauseElement):
                return None
            shape = shapes[names] = _Shape(statement, self._dialect, names or None)
        if not shape.usable:
            return None
        plan = shape.plan(first)
        if plan is None or (many and plan.returns_rows):
            return None
        return plan, parameters if many else first
