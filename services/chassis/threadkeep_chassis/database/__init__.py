"""Database access for services: one set of statements on memory, SQLite and PostgreSQL (R22).

Import from here. Dialect branches live in this package and nowhere else.
"""

from threadkeep_chassis.database.columns import BigSerialId, Bytes, JsonDocument, JsonText, Key, UtcTimestamp
from threadkeep_chassis.database.core import Database, Writer
from threadkeep_chassis.database.faults import (
    TransactionLost,
    is_connection_lost,
    is_data_error,
    is_serialization,
    is_unique_violation,
)
from threadkeep_chassis.database.indexes import partial_index
from threadkeep_chassis.database.json import JsonSource, json_contains, json_entries, json_member
from threadkeep_chassis.database.owner import DataOwned, OwnerLock
from threadkeep_chassis.database.session import Connection, SyncConnection, write_rows
from threadkeep_chassis.database.settings import DatabaseSettings
from threadkeep_chassis.database.spans import recording_span, shared_write
from threadkeep_chassis.database.sql import (
    contains_text,
    database_now,
    database_now_plus,
    insert,
    insert_or_ignore,
    json_text_at,
    locked_in_key_order,
    locked_skipping_others,
    starts_with,
    transaction_id,
    upsert,
    utc_day,
)
from threadkeep_chassis.database.url import DatabaseUrl, DatabaseUrlInvalid
from threadkeep_chassis.database.words import WordSet, has_words, word_index

__all__ = [
    "BigSerialId",
    "Bytes",
    "Connection",
    "DataOwned",
    "Database",
    "DatabaseSettings",
    "DatabaseUrl",
    "DatabaseUrlInvalid",
    "JsonDocument",
    "JsonSource",
    "JsonText",
    "Key",
    "OwnerLock",
    "SyncConnection",
    "TransactionLost",
    "UtcTimestamp",
    "WordSet",
    "Writer",
    "contains_text",
    "database_now",
    "database_now_plus",
    "has_words",
    "insert",
    "insert_or_ignore",
    "is_connection_lost",
    "is_data_error",
    "is_serialization",
    "is_unique_violation",
    "json_contains",
    "json_entries",
    "json_member",
    "json_text_at",
    "locked_in_key_order",
    "locked_skipping_others",
    "partial_index",
    "recording_span",
    "shared_write",
    "starts_with",
    "transaction_id",
    "upsert",
    "utc_day",
    "word_index",
    "write_rows",
]
