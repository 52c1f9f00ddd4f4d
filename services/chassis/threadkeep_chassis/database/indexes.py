"""Partial indexes, which both dialects have under different names."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.expression import ColumnElement


def partial_index(name: str, *columns: Any, where: ColumnElement[bool], unique: bool = False) -> sa.Index:
    """An index over the rows for which `where` holds, on every backend. Pass it to a Table, or build it after one."""
    return sa.Index(name, *columns, unique=unique, postgresql_where=where, sqlite_where=where)
