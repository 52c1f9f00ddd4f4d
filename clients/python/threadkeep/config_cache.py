"""Config that is there already: a copy of what a scope sees, kept up to date by one watch.

async with AsyncConfigCache(client) as cache:
    agent = cache.resolve("agent", "clerk")     # no call

Reads are answered from memory. The cache goes on by itself after a broken connection, begins anew where history was
compacted, says how fresh it is, and calls back on changes. `ConfigCache` is the same for synchronous code.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from threadkeep._api import config
from threadkeep._config_view import ConfigChange, ConfigView, scope_id
from threadkeep._rpc.context import RetryPolicy
from threadkeep.client import AsyncClient, Client
from threadkeep.config.v1 import config_service_pb2, watch_pb2
from threadkeep.config.v1.entity_pb2 import Entity
from threadkeep.errors import (
    FreshnessTimeout,
    InvalidArgument,
    RevisionCompacted,
    SlowConsumer,
    ThreadkeepError,
)

__all__ = ["AsyncConfigCache", "ConfigCache", "ConfigChange", "Freshness"]

log = logging.getLogger("threadkeep.config_cache")

MANIFESTS_KEPT = 1024

Callback = Callable[[ConfigChange], None]
_PROBE = "-"
"""A name that need not exist: Explain is asked for the precedence of scope keys alone."""


@dataclass(frozen=True)
class Freshness:
    """How far a cache can be relied on."""

    revision: int
    """The service's revision that it holds."""
    age_seconds: float
    """How long ago the server last said that this is all there is. It does so at least once in a bookmark interval."""
    is_connected: bool
    """False while the watch is broken and being made again."""


class AsyncConfigCache:
    """A warm copy of config for the client's scope.

    `types` bounds what is kept (none: everything). Callbacks run in the event loop, in the order of revisions; after a
    break that outlived history, they tell the differences. A silence of `silence_seconds` counts as a break.
    """

    def __init__(
        self, client: AsyncClient, *, types: Sequence[config.Type] = (), silence_seconds: float = 45.0
    ) -> None:
        if client.scope is None:
            raise ValueError("a config cache is of one scope; give the client one")
        self._client = client
        self._types = [config.to_type(one) for one in types]
        self._silence_seconds = silence_seconds
        self._view = ConfigView()
        self._view.scope = scope_id(client.scope)
        self._callbacks: list[Callback] = []
        self._manifests: dict[str, config_service_pb2.ResolveManifestResponse] = {}
        self._moved = asyncio.Condition()
        self._told_at = 0.0
        self._is_connected = False
        self._begins_anew = True
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Returns when the cache is warm. Raises what the server refuses, and after the client's timeout what broke."""
        self._task = asyncio.create_task(self._run(), name="config cache")
        warm = asyncio.create_task(self._until(lambda: self._view.revision is not None))
        try:
            await asyncio.wait(
                {self._task, warm}, timeout=self._client._options.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if self._task.done():
                self._task.result()
            if not warm.done():
                raise FreshnessTimeout("the config cache did not get warm in time")
        except BaseException:
            await self.close()
            raise
        finally:
            warm.cancel()

    async def close(self) -> None:
        """Ends the watch. Reads go on to be answered from what is there."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._is_connected = False

    # -- reads, from memory --------------------------------------------------------------------------------------------

    def resolve(self, type: config.Type, name: str) -> Entity | None:
        """The entity that counts in the scope, or None. Merged Defaults have no digest."""
        return self._view.resolve(config.to_type(type), name)

    def get(self, type: config.Type, name: str) -> Entity | None:
        """The entity of exactly the scope, or None."""
        return self._view.get(config.to_type(type), name, self._view.scope)

    def entities(self, *types: config.Type) -> list[Entity]:
        """All that the scope sees, by type, name and scope; what is overridden or hidden too."""
        return self._view.entities(config.to_type(one) for one in types)

    @property
    def freshness(self) -> Freshness:
        """How far the cache can be relied on now."""
        return Freshness(self._view.revision or 0, time.monotonic() - self._told_at, self._is_connected)

    def on_change(self, callback: Callback) -> Callable[[], None]:
        """Calls back on each change that comes from now on; gives a function that ends it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def at_least(self, revision: int, timeout: float = 30.0) -> None:
        """Returns when the cache holds the revision, so that a caller reads its own writes. Raises FreshnessTimeout."""
        try:
            async with asyncio.timeout(timeout):
                await self._until(lambda: (self._view.revision or 0) >= revision)
        except TimeoutError:
            raise FreshnessTimeout(f"the config cache is at {self._view.revision}, not at {revision}") from None

    async def manifest(self, agent_name: str) -> config_service_pb2.ResolveManifestResponse:
        """The agent's manifest: one call, and none again until something changes. Raises AgentUnresolved."""
        if self._types:
            raise ValueError("a manifest depends on every type; make the cache without `types`")
        found = self._manifests.get(agent_name)
        if found is None:
            found = await self._client.config.resolve_manifest(agent_name)
            # A later one than the view goes again with the change that is on its way; an earlier one is past.
            if found.config_revision >= (self._view.revision or 0):
                self._manifests[agent_name] = found
                if len(self._manifests) > MANIFESTS_KEPT:
                    del self._manifests[next(iter(self._manifests))]
        return found

    # -- the watch -----------------------------------------------------------------------------------------------------

    async def _until(self, is_true: Callable[[], bool]) -> None:
        async with self._moved:
            await self._moved.wait_for(is_true)

    async def _run(self) -> None:
        try:
            await self._keep_following()
        finally:
            self._is_connected = False

    async def _keep_following(self) -> None:
        retry, attempt = self._client._options.retry or RetryPolicy(), 0
        while True:
            before = self._told_at
            try:
                await self._follow()
                delay = 0.0
            except (RevisionCompacted, InvalidArgument) as error:
                # History is gone, or the service was set back to an earlier point.
                if self._begins_anew or (
                    isinstance(error, InvalidArgument) and "after_revision" not in str(error.violations)
                ):
                    raise
                self._begins_anew, delay = True, 0.0
            except ThreadkeepError as error:
                if not (retry.retries(error) or isinstance(error, SlowConsumer)):
                    if self._view.revision is None:
                        raise
                    log.error("config cache is refused: %s", error)
                attempt = 1 if self._told_at > before else attempt + 1
                delay = retry.delay(attempt, error)
            except TimeoutError:
                log.warning("config cache heard nothing for %s s", self._silence_seconds)
                delay = 0.0
            self._is_connected = False
            await asyncio.sleep(delay)

    async def _follow(self) -> None:
        explained = await self._client.config.explain("provider", _PROBE)
        self._view.precedence = tuple(explained.key_precedence)
        after = None if self._begins_anew else self._view.revision
        filters = [watch_pb2.WatchFilter(filter_id="cache", types=self._types)]
        feed = config.watch(filters, after_revision=after)
        if after is None:
            self._view.begin_snapshot()
        frames = self._client.config._transport.frames(feed.call, self._client._context)
        async with contextlib.aclosing(frames):  # type: ignore[type-var]
            while True:
                async with asyncio.timeout(self._silence_seconds):
                    frame = await anext(frames, None)
                if frame is None:
                    return
                await self._take(frame)

    async def _take(self, frame: config_service_pb2.WatchResponse) -> None:
        changes = self._view.apply(frame)
        if frame.HasField("synced"):
            self._begins_anew = False
        if not self._begins_anew:
            self._told_at, self._is_connected = time.monotonic(), True
        if changes:
            self._manifests.clear()
        for change in changes:
            for callback in list(self._callbacks):
                try:
                    callback(change)
                except Exception:
                    log.exception("a callback of the config cache failed")
        async with self._moved:
            self._moved.notify_all()


class ConfigCache:
    """The same for synchronous code: the watch and callbacks run in a thread of its own. Read it from any thread."""

    def __init__(self, client: Client, *, types: Sequence[config.Type] = (), silence_seconds: float = 45.0) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="config cache", daemon=True)
        self._asyncio: AsyncClient | None = None
        self._told = {"types": types, "silence_seconds": silence_seconds}
        self._cache: AsyncConfigCache | None = None
        self._callbacks: list[Callback] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Returns when the cache is warm. Raises as AsyncConfigCache.start does."""
        self._thread.start()
        try:
            self._call(self._open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the watch and its thread."""
        if self._thread.is_alive():
            self._call(self._shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        if not self._loop.is_closed():
            self._loop.close()

    def resolve(self, type: config.Type, name: str) -> Entity | None:
        """The entity that counts in the scope, or None. Merged Defaults have no digest."""
        return self._warm.resolve(type, name)

    def get(self, type: config.Type, name: str) -> Entity | None:
        """The entity of exactly the scope, or None."""
        return self._warm.get(type, name)

    def entities(self, *types: config.Type) -> list[Entity]:
        """All that the scope sees, by type, name and scope; what is overridden or hidden too."""
        return self._call(self._on_loop(lambda: self._warm.entities(*types)))

    @property
    def freshness(self) -> Freshness:
        """How far the cache can be relied on now."""
        return self._warm.freshness

    def on_change(self, callback: Callback) -> Callable[[], None]:
        """Calls back on each change that comes from now on, in the cache's thread; gives a function that ends it."""
        return self._warm.on_change(callback)

    def at_least(self, revision: int, timeout: float = 30.0) -> None:
        """Returns when the cache holds the revision. Raises FreshnessTimeout."""
        self._call(self._warm.at_least(revision, timeout))

    def manifest(self, agent_name: str) -> config_service_pb2.ResolveManifestResponse:
        """The agent's manifest: one call, and none again until something changes. Raises AgentUnresolved."""
        return self._call(self._warm.manifest(agent_name))

    @property
    def _warm(self) -> AsyncConfigCache:
        if self._cache is None:
            raise RuntimeError("the config cache was not started")
        return self._cache

    async def _open(self) -> None:
        self._asyncio = self._client.to_async()
        self._cache = AsyncConfigCache(self._asyncio, **self._told)  # type: ignore[arg-type]
        await self._cache.start()

    async def _shut(self) -> None:
        if self._cache is not None:
            await self._cache.close()
        if self._asyncio is not None:
            await self._asyncio.close()

    @staticmethod
    async def _on_loop(read: Callable[[], Any]) -> Any:
        return read()

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
