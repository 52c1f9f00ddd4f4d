"""The one server interceptor: builds the Call, enforces the contract's rules, times, logs, traces, maps errors.

Servicers translate and raise; nothing of what is done here is done anywhere else. All four kinds of call are covered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError, Message
from opentelemetry import trace

from threadkeep_chassis import errors
from threadkeep_chassis.canonical import JsonInvalid
from threadkeep_chassis.database import is_connection_lost
from threadkeep_chassis.limits import CROWDED, TOO_LARGE
from threadkeep_chassis.logs import fault_facts
from threadkeep_chassis.rules import AdoptedService, MethodRule, ScopeRule, method_rule
from threadkeep_chassis.scope import (
    GRANT_HEADER,
    GRANT_TEXT_HEADER,
    SCOPE_HEADER,
    SCOPE_TEXT_HEADER,
    Call,
    Drain,
    enter_call,
    parse_grant,
    parse_scope,
)
from threadkeep_chassis.status import code_of, reason_of, to_grpc_status
from threadkeep_chassis.telemetry import MethodMetrics, RpcMetrics, Tracing
from threadkeep_chassis.validation import Validator

Handler = Callable[[Any, Any], Any]

_log = structlog.get_logger("threadkeep.rpc")


class ChassisInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of a server. One per Host."""

    def __init__(
        self,
        metrics: RpcMetrics,
        drain: Drain,
        *,
        max_message_bytes: int = 2**31,
        max_concurrent_rpcs: int = 2**31,
        adopted: Mapping[str, AdoptedService] | None = None,
    ) -> None:
        self._metrics = metrics
        self._adopted = dict(adopted or {})
        self._max_message_bytes = max_message_bytes
        self.max_concurrent_rpcs = max_concurrent_rpcs
        self.open_calls = 0
        self.drain = drain
        self.tracing = Tracing()
        self._validator = Validator()
        self._wrapped: dict[str, grpc.RpcMethodHandler] = {}
        self._streams: dict[asyncio.Task[Any], _Serving] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Returns the wrapped handler of the method; an unknown method is refused with a reason too (X6)."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return _UNKNOWN
            wrapped = self._wrap(method, method_rule(method, self._adopted), handler)
            self._wrapped[method] = wrapped
        return wrapped

    def end_streams(self, *, only_foreign: bool = False) -> None:
        """Ends the response streams that are still open, with SHUTTING_DOWN.

        `only_foreign` means those of methods outside threadkeep (health watches): they know no drain.
        """
        for task, serving in list(self._streams.items()):
            if not only_foreign or serving.is_foreign:
                serving.forced = True
                task.cancel()

    def _wrap(self, method: str, rule: MethodRule | None, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        codec = {
            "request_deserializer": handler.request_deserializer
            if rule is None
            else _careful(handler.request_deserializer),
            "response_serializer": handler.response_serializer,
        }
        if handler.request_streaming:
            if handler.response_streaming:
                return grpc.stream_stream_rpc_method_handler(
                    self._response_stream(method, rule, handler.stream_stream), **codec
                )
            return grpc.stream_unary_rpc_method_handler(
                self._single_response(method, rule, handler.stream_unary), **codec
            )
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._response_stream(method, rule, handler.unary_stream), **codec
            )
        return grpc.unary_unary_rpc_method_handler(self._single_response(method, rule, handler.unary_unary), **codec)

    def _single_response(self, method: str, rule: MethodRule | None, inner: Handler) -> Handler:
        numbers = self._metrics.method(method)

        async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
            async with _Serving(self, method, rule, context, numbers) as serving:
                response = await inner(self._checked(rule, request), context)
                if serving.call.trailing:
                    context.set_trailing_metadata(tuple(serving.call.trailing.items()))
                return response

        return handle

    def _response_stream(self, method: str, rule: MethodRule | None, inner: Handler) -> Handler:
        numbers = self._metrics.method(method)

        async def handle(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            async with _Serving(self, method, rule, context, numbers) as serving:
                task = asyncio.current_task()
                assert task is not None
                self._streams[task] = serving
                try:
                    responses = inner(self._checked(rule, request), context)
                    if not hasattr(responses, "__aiter__"):
                        # A handler that writes by itself.
                        await responses
                        return
                    try:
                        async for response in responses:
                            numbers.messages += 1
                            yield response
                    finally:
                        # A cancelled call must free what the generator holds now, not at garbage collection (B96).
                        await responses.aclose()
                    if serving.call.trailing:
                        context.set_trailing_metadata(tuple(serving.call.trailing.items()))
                finally:
                    self._streams.pop(task, None)

        return handle

    def _checked(self, rule: MethodRule | None, request: Any) -> Any:
        """The request after validation, or the stream whose messages are validated as they come."""
        if rule is None:
            return request
        if request is _MALFORMED:
            raise _malformed()
        if isinstance(request, Message):
            self._check_size(request)
            self._validator.check_request(rule, request)
            return request
        return self._checked_stream(rule, request)

    def _check_size(self, request: Message) -> None:
        size = request.ByteSize()
        if size > self._max_message_bytes:
            raise errors.LimitExceeded("max_message_bytes", self._max_message_bytes, size, TOO_LARGE)

    async def _checked_stream(self, rule: MethodRule, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
        first = True
        async for request in requests:
            if request is _MALFORMED:
                raise _malformed()
            self._check_size(request)
            self._validator.check_request(rule, request, first=first)
            first = False
            yield request


_MALFORMED: Any = object()
"""Stands for a request that is no message of its type: the framework would answer INTERNAL without a reason."""


def _careful(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _MALFORMED

    return read


def _malformed() -> errors.FieldInvalid:
    return errors.FieldInvalid("request", "must be a serialized message of the method's type")


async def _refuse_unknown(request: Any, context: grpc.aio.ServicerContext) -> Any:
    status = to_grpc_status(errors.MethodUnknown())
    await context.abort(status.code, status.details, status.trailing_metadata)


_UNKNOWN = grpc.unary_unary_rpc_method_handler(_refuse_unknown)


class _Serving:
    """Everything around a handler: context, rules, metrics, span, log line, and the answer to an error.

    A class, because a generator's context manager costs a tenth of an empty call.
    """

    __slots__ = (
        "_context",
        "_interceptor",
        "_method",
        "_numbers",
        "_repeated",
        "_rule",
        "_span",
        "_started",
        "_tracing",
        "_using",
        "call",
        "forced",
    )

    def __init__(
        self,
        interceptor: ChassisInterceptor,
        method: str,
        rule: MethodRule | None,
        context: grpc.aio.ServicerContext,
        numbers: MethodMetrics,
    ) -> None:
        self._started = time.perf_counter()
        self._method, self._rule, self._context, self._numbers = method, rule, context, numbers
        self._tracing = interceptor.tracing
        self._interceptor = interceptor
        self._using: Any = None
        self.forced = False
        """True if the host ended the stream."""
        pairs = context.invocation_metadata() or ()
        metadata = dict(pairs)
        self._repeated = None if len(metadata) == len(pairs) else _repeated_identity(pairs)
        self._span, trace_context = self._tracing.start(method, metadata)
        remaining = context.time_remaining()
        self.call = Call(
            method=method,
            metadata=metadata,
            trace=trace_context,
            deadline=None if remaining is None else time.monotonic() + remaining,
            draining=interceptor.drain,
        )

    @property
    def is_foreign(self) -> bool:
        """True for methods outside threadkeep."""
        return self._rule is None

    async def __aenter__(self) -> _Serving:
        self._numbers.open += 1
        interceptor = self._interceptor
        interceptor.open_calls += 1
        try:
            if self._rule is not None:
                if interceptor.open_calls > interceptor.max_concurrent_rpcs:
                    most = interceptor.max_concurrent_rpcs
                    raise errors.LimitExceeded("max_concurrent_rpcs", most, interceptor.open_calls, CROWDED)
                if self._repeated is not None:
                    raise errors.FieldInvalid(self._repeated, "is given once")
                _identify(self.call, self._rule)
        except Exception as error:
            await self.__aexit__(type(error), error, None)
            raise
        enter_call(self.call)
        if self._span is not None:
            self._using = trace.use_span(
                self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
            )
            self._using.__enter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        code, answer = self._outcome(error)
        elapsed = time.perf_counter() - self._started
        self._numbers.ended(code, elapsed)
        self._interceptor.open_calls -= 1
        if self._using is not None:
            # ValueError: a generator that was closed from another task; its context dies with it.
            with suppress(ValueError):
                self._using.__exit__(None, None, None)
        self._tracing.end(self._span, code)
        if code == "INTERNAL" and answer is not None and error is not None:
            _log.error("call failed", method=self._method, trace_id=self.call.trace.trace_id, **fault_facts(error))
        scope = self.call.named_scope
        _log.debug(
            "call",
            method=self._method,
            code=code,
            seconds=round(elapsed, 6),
            scope_key=scope.key if scope is not None else None,
            trace_id=self.call.trace.trace_id,
        )
        if isinstance(error, grpc.aio.InternalError):
            # The framework takes this as the caller's leave, which it was; another error it would log at length.
            raise asyncio.CancelledError from error
        if answer is not None:
            status = to_grpc_status(answer, self.call.trace.trace_id, self._also(answer))
            await self._context.abort(status.code, status.details, status.trailing_metadata)

    def _also(self, answer: Exception) -> list[tuple[str, str]]:
        """What the method's own protocol calls the error."""
        adopted = self._rule.adopted if self._rule is not None else None
        reason = adopted.reason_of(code_of(answer), reason_of(answer)) if adopted is not None else None
        return [] if adopted is None or reason is None else [(adopted.domain, reason)]

    def _outcome(self, error: BaseException | None) -> tuple[str, Exception | None]:
        """The code that the call ended with, and what is still to be answered."""
        if error is None:
            return "OK", None
        if isinstance(error, grpc.aio.AbortError):
            return _code_name(self._context), None
        if isinstance(error, asyncio.CancelledError) and self.forced:
            current = asyncio.current_task()
            if current is not None:
                current.uncancel()
            return "UNAVAILABLE", errors.ShuttingDown()
        if not isinstance(error, Exception) or isinstance(error, grpc.aio.InternalError):
            # The latter: the caller left while a handler that writes by itself was writing.
            return "CANCELLED", None
        answer = _answer(error)
        return code_of(answer), answer


def _repeated_identity(pairs: Any) -> str | None:
    """The name of the scope or the grant if a call gives it twice: which one is meant is not ours to guess."""
    names = [name for name, _ in pairs]
    known = (SCOPE_HEADER, GRANT_HEADER, SCOPE_TEXT_HEADER, GRANT_TEXT_HEADER)
    return next((name for name in known if names.count(name) > 1), None)


def _identify(call: Call, rule: MethodRule) -> None:
    """Reads scope and grant from the trusted metadata and holds them against the method's rule (X1, X13)."""
    scope, grant = call.metadata.get(SCOPE_HEADER), call.metadata.get(GRANT_HEADER)
    if rule.adopted is not None:
        scope, grant = _text_too(call, SCOPE_TEXT_HEADER, scope), _text_too(call, GRANT_TEXT_HEADER, grant)
    if isinstance(scope, bytes):
        call.named_scope = parse_scope(scope)
    if isinstance(grant, bytes):
        call.named_grant = parse_grant(grant)
    if rule.scope == ScopeRule.NONE:
        return
    if call.named_scope is None and (rule.scope == ScopeRule.ONE or call.named_grant is None):
        raise errors.ScopeRequired()
    call.check()


def _text_too(call: Call, name: str, given: str | bytes | None) -> str | bytes | None:
    """The value of a header that may come as text instead."""
    text = call.metadata.get(name)
    if not isinstance(text, str):
        return given
    if given is not None:
        raise errors.FieldInvalid(name, "is given once, as text or in binary")
    return text.encode()


def _answer(error: Exception) -> Exception:
    """What the caller is told: a lost database is no fault of the server, everything unknown is."""
    if isinstance(error, errors.ThreadkeepError):
        return error
    cause = getattr(error, "orig", error)
    if isinstance(cause, JsonInvalid):
        # A value that a column refuses; which field it came from, the servicer knows better and may say.
        return errors.FieldInvalid("", f"a JSON value {cause}")
    if is_connection_lost(error) and not isinstance(error, (OSError, asyncio.TimeoutError)):
        return errors.DatabaseUnavailable()
    return error


def _code_name(context: grpc.aio.ServicerContext) -> str:
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name
    for candidate in grpc.StatusCode:
        if candidate.value[0] == code:
            return candidate.name
    return "UNKNOWN"
