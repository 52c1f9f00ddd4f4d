"""One server per SQLite file, and the second one is told who has it (B49, R22)."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.chassis.tables import BUMP, SCHEMA, opened, value
from tests.support.processes import Processes
from threadkeep_chassis.database import Connection, Database, DataOwned, OwnerLock

HOLD = """
import sys, time
from pathlib import Path
from threadkeep_chassis.database import OwnerLock
OwnerLock.acquire(Path(sys.argv[1]), "the first server")
print("owned", flush=True)
time.sleep(600)
"""


@pytest.mark.case("B49")
@pytest.mark.rule("R22")
async def test_a_second_server_on_the_file_is_refused_and_told_the_owner(tmp_path: Path, processes: Processes) -> None:
    file = tmp_path / "data" / "runtime.db"
    owner = subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        assert (await asyncio.to_thread(owner.stdout.readline)).strip() == "owned"
        with pytest.raises(DataOwned) as caught:
            await Database.open(f"sqlite:///{file}", SCHEMA)
        assert f'"pid": {owner.pid}' in str(caught.value)
        assert "the first server" in str(caught.value)
        # A crash leaves nothing to clean up.
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        lock = OwnerLock.acquire(file, "the second server")
        assert f'"pid": {os.getpid()}' in file.with_name("runtime.db.owner").read_text()
        lock.release()
        lock.release()
    finally:
        owner.kill()
        owner.wait()
        if owner.stdout is not None:
            owner.stdout.close()


@pytest.mark.case("B49")
@pytest.mark.suite(backends=["sqlite"])
async def test_many_writers_of_one_server_meet_no_lock(database_url: str) -> None:
    async with opened(database_url) as database:

        async def bump(connection: Connection) -> None:
            await connection.execute(BUMP, {"key": "a"})

        async def client() -> None:
            for _ in range(50):
                await database.retrying(bump)

        await asyncio.gather(*(client() for _ in range(4)))
        assert await value(database) == 200


@pytest.mark.suite(backends=["sqlite"])
async def test_a_closed_database_gives_the_file_back(database_url: str) -> None:
    for expected in range(3):
        async with _again(database_url, first=expected == 0) as database:
            assert await value(database) == expected
            async with database.write() as connection:
                await connection.execute(BUMP, {"key": "a"})


def _again(url: str, *, first: bool):  # type: ignore[no-untyped-def]
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def reopened():  # type: ignore[no-untyped-def]
        database = await Database.open(url, SCHEMA)
        try:
            yield database
        finally:
            await database.close()

    return opened(url) if first else reopened()
