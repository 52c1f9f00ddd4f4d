"""The client's config cache (C6): warm without calls, fresh by itself, over breaks, restarts and compactions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.calls import error_details
from tests.support.config import AGENT, DEFAULTS, TOOL, Caller, agent, config_database, config_server, defined, tool
from tests.support.databases import Databases
from tests.support.waiting import eventually
from threadkeep import AsyncClient, Client, errors
from threadkeep.common.v1 import payload_pb2
from threadkeep.config.v1 import watch_pb2
from threadkeep.config_cache import AsyncConfigCache, ConfigCache, ConfigChange

ONE = pytest.mark.suite(backends=["memory"])
"""Where the wire adds nothing, one backend says it all."""


@asynccontextmanager
async def cached(address: str, caller: Caller, **more: Any) -> AsyncIterator[AsyncConfigCache]:
    """A warm cache of the caller's scope."""
    async with AsyncClient(address, scope=caller.values) as client, AsyncConfigCache(client, **more) as cache:
        yield cache


@ONE
@pytest.mark.rule("C6")
async def test_a_warm_cache_answers_without_a_call(databases: Databases, backend: str) -> None:
    async with config_server("memory:", bookmark_seconds=0.05) as server:
        acme = server.caller()
        inner = acme.within(user="u")
        await acme.put(TOOL, "t", tool("outer"))
        await acme.put(AGENT, "a", agent())
        mine = (await inner.put(TOOL, "t", tool("inner"))).entity
        await acme.put(DEFAULTS, "d", defined(defaults={"model": "m"}))
        await inner.put(DEFAULTS, "d", defined(defaults={"max_steps": 2}))
        await inner.put(AGENT, "own", agent())
        both = defined(defaults={"model": "m", "max_steps": 2})
        async with cached(server.host.address, inner) as cache:
            calls = server.calls
            for _ in range(100):
                assert cache.resolve("tool", "t") == mine
                assert cache.get("tool", "t") == mine
                assert cache.resolve("agent", "a") is None, "agents of the API stay in their scope"
                merged = cache.resolve("defaults", "d")
                assert merged is not None
                assert merged.definition == both
            assert [one.name for one in cache.entities("agent")] == ["own"]
            digest = (await cache.manifest("own")).digest
            known = server.calls
            for _ in range(20):
                assert (await cache.manifest("own")).digest == digest
            told = cache.freshness
            assert told.is_connected
            # Bookmarks keep it fresh: they are no calls.
            await eventually(lambda: cache.freshness.age_seconds < told.age_seconds)
            assert server.calls == known <= calls + 1
            changed = (await inner.put(AGENT, "own", agent("Be long."))).entity
            await cache.at_least(changed.revision)
            assert (await cache.manifest("own")).digest != digest


@pytest.mark.rule("C6")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_a_cache_goes_on_by_itself_and_tells_each_change_once(databases: Databases, backend: str) -> None:
    url = await config_database(databases, backend)
    async with config_server(url) as server:
        acme, address = server.caller(), server.host.address
        await acme.put(TOOL, "t", tool("0"))
        async with AsyncClient(address, scope=acme.values) as client:
            cache = AsyncConfigCache(client)
            await cache.start()
            changes: list[ConfigChange] = []
            cache.on_change(changes.append)
            stop = cache.on_change(lambda _: 1 / 0)
            await acme.put(TOOL, "t", tool("1"))
            await eventually(lambda: len(changes) == 1)
            stop()
            await server.host.stop(0)
            await eventually(lambda: not cache.freshness.is_connected)
            assert (found := cache.resolve("tool", "t")) is not None
            assert found.definition == tool("1"), "what is there is still answered"
            async with config_server(url, listen=address) as again:
                writer = again.caller(**acme.values)
                await writer.delete(TOOL, "t")
                last = (await writer.put(TOOL, "u", tool("2"))).entity
                await cache.at_least(last.revision)
                assert cache.resolve("tool", "t") is None
                assert cache.resolve("tool", "u") == last
                assert cache.freshness.is_connected
                assert [(one.before is None, one.after is None) for one in changes] == [
                    (False, False),
                    (False, True),
                    (True, False),
                ]
            with pytest.raises(errors.FreshnessTimeout):
                await cache.at_least(last.revision + 1, timeout=0.05)
            await cache.close()
    await databases.drop(url)


@pytest.mark.rule("C6")
@pytest.mark.case("B78")
@pytest.mark.suite(backends=["sqlite"])
async def test_a_cache_whose_history_was_compacted_begins_anew_and_tells_the_differences(
    databases: Databases, backend: str
) -> None:
    url = await config_database(databases, backend)
    short = {"bookmark_seconds": 0.05, "history_retention_seconds": 0.1, "compaction_interval_seconds": 0.05}
    async with config_server(url) as server:
        acme, address = server.caller(), server.host.address
        for name in ("kept", "gone", "changed"):
            await acme.put(TOOL, name, tool("old"))
        async with AsyncClient(address, scope=acme.values) as client:
            async with AsyncConfigCache(client) as cache:
                changes: list[ConfigChange] = []
                cache.on_change(changes.append)
                await server.host.stop(0)
                async with config_server(url, **short) as hidden:
                    # The cache does not reach this one, and misses all that it does.
                    writer = hidden.caller(**acme.values)
                    await writer.delete(TOOL, "gone")
                    for n in range(5):
                        last = (await writer.put(TOOL, "changed", tool(str(n)))).entity
                    async with asyncio.timeout(60):
                        while len(await writer.history(TOOL, "changed")) > 1:
                            await asyncio.sleep(0.02)
                async with config_server(url, listen=address):
                    await cache.at_least(last.revision)
                    assert [one.name for one in cache.entities()] == ["changed", "kept"]
                    assert cache.resolve("tool", "changed") == last
                    told = {one.entity.name: one.after is None for one in changes}
                    assert told == {"gone": True, "changed": False}
    await databases.drop(url)


@ONE
@pytest.mark.rule("C6", "X1")
async def test_a_cache_that_is_refused_says_so_at_once(databases: Databases, backend: str) -> None:
    async with config_server("memory:") as server:
        async with AsyncClient(server.host.address, scope={"tenant": "a"}, grant=[{"tenant": "b"}]) as client:
            with pytest.raises(errors.ScopeForbidden):
                await AsyncConfigCache(client).start()
    async with AsyncClient("127.0.0.1:1", scope={"tenant": "a"}, timeout=0.2) as client:
        with pytest.raises(errors.FreshnessTimeout):
            await AsyncConfigCache(client).start()


@ONE
@pytest.mark.rule("C6")
async def test_synchronous_code_has_the_same_cache(databases: Databases, backend: str) -> None:
    async with config_server("memory:") as server:
        acme = server.caller()
        entity = (await acme.put(TOOL, "t", tool())).entity

        def use() -> None:
            with Client(server.host.address, scope=acme.values) as client:
                with ConfigCache(client, types=["tool"]) as cache:
                    told: list[ConfigChange] = []
                    cache.on_change(told.append)
                    assert cache.resolve("tool", "t") == cache.get("tool", "t") == entity
                    assert cache.entities("tool") == [entity]
                    revision = client.config.delete("tool", "t").revision
                    cache.at_least(revision)
                    assert cache.resolve("tool", "t") is None
                    assert [one.after for one in told] == [None]
                    assert cache.freshness.revision == revision

        await asyncio.to_thread(use)


@ONE
@pytest.mark.rule("C6", "X13")
@pytest.mark.case("B81")
async def test_a_filter_beyond_what_the_call_sees_is_refused_and_the_others_live(
    databases: Databases, backend: str
) -> None:
    async with config_server("memory:") as server:
        acme = server.caller(tenant="acme")
        other = payload_pb2.Scope(values={"tenant": "globex"})
        foreign = watch_pb2.WatchFilter(filter_id="foreign", exact_scope=other)
        inner = payload_pb2.Scope(values={"tenant": "acme", "u": "1"})
        wider = watch_pb2.WatchFilter(filter_id="deeper", exact_scope=inner)
        watch = acme.watch([foreign, watch_pb2.WatchFilter(filter_id="mine"), wider])
        refused = [(await watch.frame()).refused for _ in range(2)]
        assert [(one.filter_id, one.reason) for one in refused] == [
            ("foreign", "SCOPE_FORBIDDEN"),
            ("deeper", "SCOPE_FORBIDDEN"),
        ]
        assert await watch.snapshot() == []
        await server.caller(tenant="globex").put(TOOL, "theirs", tool())
        mine = (await acme.put(TOOL, "mine", tool())).entity
        (change,) = await watch.changes(1)
        assert (change.entity, list(change.filter_ids)) == (mine, ["mine"])
        watch.cancel()
        assert error_details(await acme.watch([foreign]).end()).reason == "SCOPE_FORBIDDEN"
