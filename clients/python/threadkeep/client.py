"""The clients: `Client` for synchronous code, `AsyncClient` for asyncio. Each covers all four services.

Both have the same parts with the same names and arguments; the asyncio ones are awaited. Every mutation gets a
request_id of its own unless one is given, and every retry sends that same one, so that an effect happens once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import grpc

from threadkeep import _async_parts, _sync_parts
from threadkeep._rpc.aio_transport import AioTransport
from threadkeep._rpc.channels import Targets
from threadkeep._rpc.context import CallContext, CallOptions, Grant, Reader, RetryPolicy, Scope
from threadkeep._rpc.transport import Transport

DEFAULT_TARGET = "127.0.0.1:7433"
"""Where `threadkeepd up` listens."""


class _Base:
    """What both clients know: who calls, and with how much patience."""

    def __init__(self, transport: Any, context: CallContext, options: CallOptions) -> None:
        self._transport = transport
        self._context = context
        self._options = options
        self._assemble()

    def _assemble(self) -> None:
        raise NotImplementedError

    @property
    def scope(self) -> Scope | None:
        """The scope that calls name."""
        return self._context.scope

    @property
    def targets(self) -> Targets:
        """Where the services are."""
        targets: Targets = self._transport.targets
        return targets

    def _view(self, context: CallContext, options: CallOptions) -> Self:
        view = object.__new__(type(self))
        _Base.__init__(view, self._transport, context, options)
        return view

    def with_scope(self, scope: Scope, grant: Grant | None = None) -> Self:
        """The same client for another scope, on the same connections. Without `grant` the client's own counts."""
        grant = self._context.grant if grant is None else grant
        return self._view(CallContext(scope=scope, grant=grant), self._options)

    def with_grant(self, grant: Grant) -> Self:
        """The same client without a scope and with a grant: "all", or the scopes that it covers."""
        return self._view(CallContext(scope=None, grant=grant), self._options)

    def as_reader(self, *, session_id: str | None = None, run_id: str | None = None, epoch: int | None = None) -> Self:
        """The same client as a reader of a session, or as the holder of a run's lease (its id and epoch).

        Artifacts of visibility RUN are for readers of their session, PRIVATE ones for the holder of their run's lease.
        """
        return self._view(replace(self._context, reader=Reader(session_id, run_id, epoch)), self._options)

    def with_options(self, *, timeout: float | None = None, retry: bool | RetryPolicy | None = None) -> Self:
        """The same client with another timeout in seconds (retries included), or other retries (False: none)."""
        options = self._options if timeout is None else replace(self._options, timeout=timeout)
        if retry is not None:
            policy = retry if isinstance(retry, RetryPolicy) else (RetryPolicy() if retry else None)
            options = replace(options, retry=policy)
        return self._view(self._context, options)


class Client(_Base):
    """threadkeep for synchronous code. Safe for many threads. Close it, or use it as a context manager.

    `target` is one address for all services, or a map of `runtime`, `config`, `artifacts`, `projection` to addresses.
    `scope` is the scope that calls work in; the empty scope `{}` needs `grant="all"`.
    """

    sessions: _sync_parts.Sessions
    tasks: _sync_parts.Tasks
    schedules: _sync_parts.Schedules
    runs: _sync_parts.Runs
    tickets: _sync_parts.Tickets
    outbox: _sync_parts.Outbox
    threads: _sync_parts.Threads
    checkpoints: _sync_parts.Checkpoints
    store: _sync_parts.Store
    events: _sync_parts.Events
    worker: _sync_parts.WorkerCalls
    config: _sync_parts.Config
    artifacts: _sync_parts.Artifacts
    messages: _sync_parts.Messages
    summaries: _sync_parts.Summaries
    streams: _sync_parts.Streams
    projection_admin: _sync_parts.ProjectionAdmin
    retention: _sync_parts.Retention
    info: _sync_parts.Info

    def __init__(
        self,
        target: str | Mapping[str, str] = DEFAULT_TARGET,
        *,
        scope: Scope | None = None,
        grant: Grant | Sequence[Scope] | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        transport = Transport(Targets.of(target, credentials))
        super().__init__(transport, CallContext(scope, grant), CallOptions(timeout, retry or RetryPolicy()))

    def _assemble(self) -> None:
        parts = (self._transport, self._context, self._options)
        for name, kind in _sync_parts.PARTS.items():
            setattr(self, name, kind(*parts))

    def to_async(self) -> AsyncClient:
        """An asyncio client with the same targets, scope and options."""
        client = object.__new__(AsyncClient)
        _Base.__init__(client, AioTransport(self.targets), self._context, self._options)
        return client

    def close(self) -> None:
        """Closes the connections, of every view of this client."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Base):
    """threadkeep for asyncio. Several event loops may share one; each gets connections of its own.

    Arguments are those of `Client`.
    """

    sessions: _async_parts.Sessions
    tasks: _async_parts.Tasks
    schedules: _async_parts.Schedules
    runs: _async_parts.Runs
    tickets: _async_parts.Tickets
    outbox: _async_parts.Outbox
    threads: _async_parts.Threads
    checkpoints: _async_parts.Checkpoints
    store: _async_parts.Store
    events: _async_parts.Events
    worker: _async_parts.WorkerCalls
    config: _async_parts.Config
    artifacts: _async_parts.Artifacts
    messages: _async_parts.Messages
    summaries: _async_parts.Summaries
    streams: _async_parts.Streams
    projection_admin: _async_parts.ProjectionAdmin
    retention: _async_parts.Retention
    info: _async_parts.Info

    def __init__(
        self,
        target: str | Mapping[str, str] = DEFAULT_TARGET,
        *,
        scope: Scope | None = None,
        grant: Grant | Sequence[Scope] | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        transport = AioTransport(Targets.of(target, credentials))
        super().__init__(transport, CallContext(scope, grant), CallOptions(timeout, retry or RetryPolicy()))

    def _assemble(self) -> None:
        parts = (self._transport, self._context, self._options)
        for name, kind in _async_parts.PARTS.items():
            setattr(self, name, kind(*parts))

    def to_sync(self) -> Client:
        """A synchronous client with the same targets, scope and options."""
        client = object.__new__(Client)
        _Base.__init__(client, Transport(self.targets), self._context, self._options)
        return client

    async def leave_loop(self) -> None:
        """Closes the running loop's connections alone, for a loop that ends before the client does."""
        await self._transport.leave()

    async def close(self) -> None:
        """Closes the running loop's connections, of every view of this client."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
