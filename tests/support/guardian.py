"""Temporary folders that go with the test run, however it ends, and with them the PostgreSQL server that lives there.

Each is watched by a process of its own (`python guardian.py FOLDER`) whose stdin is a pipe from the test run. The pipe
ends with the run, also when the run is killed; what is left behind would keep its memory and its disk for ever.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_SECONDS = 10.0


class GuardedFolder:
    """A temporary folder; `close` removes it, and else its guardian does."""

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._guardian = subprocess.Popen(
            [sys.executable, __file__, self.path], stdin=subprocess.PIPE, start_new_session=True
        )

    def close(self) -> None:
        """Ends what lives there and removes it."""
        assert self._guardian.stdin is not None
        self._guardian.stdin.close()
        self._guardian.wait()


def end_server(folder: Path) -> None:
    """Stops the server of `folder`, if one runs there, without waiting for its clients, and removes the folder."""
    lock = folder / "d" / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        pid = int(lock.read_text().splitlines()[0])
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_server(Path(sys.argv[1]))
