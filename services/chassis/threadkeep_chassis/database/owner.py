"""One owner process per SQLite file: a lock file beside the data names it (B49).

The lock dies with the process, so a crash leaves nothing to clean up. The file stays; only the lock on it counts.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path


class DataOwned(RuntimeError):
    """Another server owns the data. The message names it."""


class OwnerLock:
    """The lock on `<file>.owner`. Take it before the data is opened, release it after it is closed."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle: int | None = handle

    @classmethod
    def acquire(cls, data: Path, purpose: str) -> OwnerLock:
        """Becomes the owner of the file `data`. Raises DataOwned, naming process, host, purpose and start time."""
        path = data.with_name(data.name + ".owner")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(handle, 4096, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            raise DataOwned(
                f"{data} is owned by another server ({owner or 'starting up'}). Stop it, or use PostgreSQL for several."
            ) from error
        facts = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "purpose": purpose,
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.ftruncate(handle, 0)
        os.pwrite(handle, (json.dumps(facts) + "\n").encode(), 0)
        return cls(path, handle)

    def release(self) -> None:
        """Gives it up. Harmless twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
