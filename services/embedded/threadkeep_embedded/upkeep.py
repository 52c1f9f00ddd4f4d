"""`migrate`, `check`, `renew-log`: schemas up to date, whether a service could start, a log that was restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import grpc

from threadkeep.common.v1 import server_info_service_pb2 as info_pb
from threadkeep.common.v1 import server_info_service_pb2_grpc as info_grpc
from threadkeep_chassis.database import Database, DatabaseUrl, DataOwned
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_chassis.migrations import SchemaOutOfRange, check_version, migrate
from threadkeep_chassis.peers import open_channel
from threadkeep_embedded.exits import Exit
from threadkeep_embedded.services import Misconfigured, Place, migrations_of, renew_runtime_log

PEER_SECONDS = 5.0


async def migrate_all(where: Sequence[Place]) -> None:
    """Brings the schemas up to date, one after the other, and says what was done."""
    for place in where:
        if place.file is not None:
            place.file.parent.mkdir(parents=True, exist_ok=True)
        report = await migrate(place.migration_url, migrations_of(place.service))
        if report.applied:
            print(f"{place.service}: {report.before or 'nothing'} -> {report.after}", flush=True)
        else:
            print(f"{place.service}: at {report.after}", flush=True)


async def renew_log(place: Place) -> None:
    """Gives the runtime's log a new incarnation, and says which."""
    if place.file is not None and not place.file.exists():
        # Opening the file would make it.
        raise Misconfigured(f"there is no {place.file}")
    print(f"runtime: the log's incarnation is {await renew_runtime_log(place.url)}", flush=True)


async def check_all(where: Sequence[Place], peers: Mapping[str, str]) -> Exit:
    """Checks databases, schemas and peers, says what it found, and gives the worst of it."""
    found = [await _check_place(place) for place in where]
    found += [await _check_peer(name, address) for name, address in sorted(peers.items())]
    return next((code for code in (Exit.DATABASE, Exit.SCHEMA, Exit.PEER, Exit.FAILED) if code in found), Exit.OK)


async def _check_place(place: Place) -> Exit:
    migrations = migrations_of(place.service)
    parsed = DatabaseUrl.parse(place.url)
    if parsed.backend == "memory":
        return _say(place.service, "keeps its data in memory; the schema is made at start", Exit.OK)
    if parsed.path is not None and not parsed.path.exists():
        # Opening the file would make it.
        return _say(place.service, "has no file yet: run `threadkeepd migrate` first", Exit.SCHEMA)
    try:
        database = await Database.open(parsed, place.service, purpose=f"threadkeep check {place.service}")
    except DataOwned as error:
        return _say(place.service, f"is in use, so its schema fits the version that uses it ({error})", Exit.OK)
    except ThreadkeepError as error:
        return _say(place.service, f"the database is out of reach: {error.message}", Exit.DATABASE)
    except (TimeoutError, OSError) as error:
        return _say(place.service, f"the database is out of reach: {type(error).__name__}", Exit.DATABASE)
    try:
        revision = await check_version(database, migrations)
    except SchemaOutOfRange as error:
        return _say(place.service, str(error), Exit.SCHEMA)
    except ThreadkeepError as error:
        return _say(place.service, f"the database is out of reach: {error.message}", Exit.DATABASE)
    finally:
        await database.close()
    return _say(place.service, f"ok: {database.backend}, schema {revision}", Exit.OK)


async def _check_peer(name: str, address: str) -> Exit:
    channel = open_channel(address)
    try:
        stub = info_grpc.ServerInfoServiceStub(channel)
        answer = await stub.GetServerInfo(info_pb.GetServerInfoRequest(), timeout=PEER_SECONDS)
    except grpc.aio.AioRpcError as error:
        return _say(name, f"nobody answers on {address}: {error.code().name}", Exit.PEER)
    finally:
        await channel.close()
    if name not in answer.services:
        return _say(name, f"{address} serves {', '.join(answer.services)}, not {name}", Exit.PEER)
    return _say(name, f"ok: version {answer.version}, contract {answer.contract_release}, on {address}", Exit.OK)


def _say(who: str, what: str, code: Exit) -> Exit:
    print(f"{who}: {what}", flush=True)
    return code
