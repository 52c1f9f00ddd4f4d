"""Exit codes of `threadkeepd`, and how its failures are told: one line on stderr, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

from pydantic import ValidationError

from threadkeep_chassis.database import DatabaseUrlInvalid, DataOwned
from threadkeep_chassis.errors import DatabaseUnavailable
from threadkeep_chassis.hosting import ListenRefused
from threadkeep_chassis.migrations import MigrationFailed, SchemaOutOfRange
from threadkeep_embedded.processes import StartFailed
from threadkeep_embedded.services import Misconfigured


class Exit(IntEnum):
    """What scripts can tell apart."""

    OK = 0
    FAILED = 1
    """Something else went wrong."""
    USAGE = 2
    """The command line or a setting can't be followed."""
    SCHEMA = 3
    """The schema is missing, too old or too new: run `threadkeepd migrate`, or another version."""
    DATABASE = 4
    """The database is out of reach."""
    PEER = 5
    """A peer is out of reach."""
    OWNED = 6
    """Another server owns the data."""


def fail(code: Exit, message: str) -> NoReturn:
    """Says why, and ends."""
    print(f"threadkeepd: {message}", file=sys.stderr, flush=True)
    raise SystemExit(int(code))


@contextmanager
def told_failures() -> Iterator[None]:
    """Turns the failures that a person can mend into a line and an exit code."""
    try:
        yield
    except SchemaOutOfRange as error:
        fail(Exit.SCHEMA, str(error))
    except DataOwned as error:
        fail(Exit.OWNED, str(error))
    except DatabaseUnavailable as error:
        fail(Exit.DATABASE, error.message)
    except ValidationError as error:
        # Not the error's own text, which quotes values: one of them may be a database address.
        problems = "; ".join(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors())
        fail(Exit.USAGE, problems)
    except StartFailed as error:
        # The process itself has said why.
        print(f"threadkeepd: {error}", file=sys.stderr, flush=True)
        raise SystemExit(error.code) from error
    except (Misconfigured, ListenRefused, DatabaseUrlInvalid) as error:
        fail(Exit.USAGE, str(error))
    except (MigrationFailed, OSError) as error:
        fail(Exit.FAILED, str(error))
