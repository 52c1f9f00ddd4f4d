"""The one server interceptor: builds the Call, enforces the contract's rules, times, logs, traces, maps errors.

Servicers translate and raise; nothing of what is done here is done anywhere else. All four kinds of call are covered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import structlog
from google.protobuf.message import Message
from opentelemetry import trace

from threadkeep_chassis import errors
from threadkeep_chassis.database import is_connection_lost
from threadkeep_chassis.logs import fault_facts
from threadkeep_chassis.rules import MethodRule, ScopeRule, method_rule
from threadkeep_chassis.scope import (
    GRANT_HEADER,
    SCOPE_HEADER,
    Call,
    Drain,
    enter_call,
    parse_grant,
    parse_scope,
)
from threadkeep_chassis.status import code_of, to_grpc_status
from threadkeep_chassis.telemetry import RpcMetrics, Tracing
from threadkeep_chassis.validation import Validator

Handler = Callable[[Any, Any], Any]

_log = structlog.get_logger("threadkeep.rpc")


class ChassisInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of a server. One per Host."""

    def __init__(self, metrics: RpcMetrics, drain: Drain) -> None:
        self._metrics = metrics
        self._drain = drain
        self._tracing = Tracing()
        self._validator = Validator()
        self._wrapped: dict[str, grpc.RpcMethodHandler] = {}
        self._streams: dict[asyncio.Task[Any], _Open] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Returns the wrapped handler of the method; an unknown method stays unknown."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return handler
            wrapped = self._wrap(method, method_rule(method), handler)
            self._wrapped[method] = wrapped
        return wrapped

    def end_streams(self, *, only_foreign: bool = False) -> None:
        """Ends the response streams that are still open, with SHUTTING_DOWN.

        `only_foreign` means those of methods outside threadkeep (health watches): they know no drain.
        """
        for task, opened in list(self._streams.items()):
            if not only_foreign or opened.is_foreign:
                opened.forced = True
                task.cancel()

    def _wrap(self, method: str, rule: MethodRule | None, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        codec = {
            "request_deserializer": handler.request_deserializer,
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
        async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
            async with self._serving(method, rule, context) as opened:
                checked = self._checked(rule, request)
                response = await inner(checked, context)
                if opened.call.trailing:
                    context.set_trailing_metadata(tuple(opened.call.trailing.items()))
                return response

        return handle

    def _response_stream(self, method: str, rule: MethodRule | None, inner: Handler) -> Handler:
        _, _, sent = self._metrics.method(method)

        async def handle(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            async with self._serving(method, rule, context) as opened:
                task = asyncio.current_task()
                assert task is not None
                self._streams[task] = opened
                try:
                    responses = inner(self._checked(rule, request), context)
                    if not hasattr(responses, "__aiter__"):
                        # A handler that writes by itself.
                        await responses
                        return
                    try:
                        async for response in responses:
                            sent.inc()
                            yield response
                    finally:
                        # A cancelled call must free what the generator holds now, not at garbage collection (B96).
                        await responses.aclose()
                    if opened.call.trailing:
                        context.set_trailing_metadata(tuple(opened.call.trailing.items()))
                finally:
                    self._streams.pop(task, None)

        return handle

    def _checked(self, rule: MethodRule | None, request: Any) -> Any:
        """The request after validation, or the stream whose messages are validated as they come."""
        if rule is None:
            return request
        if isinstance(request, Message):
            self._validator.check_request(rule, request)
            return request
        return self._checked_stream(rule, request)

    async def _checked_stream(self, rule: MethodRule, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
        first = True
        async for request in requests:
            self._validator.check_request(rule, request, first=first)
            first = False
            yield request

    @asynccontextmanager
    async def _serving(
        self, method: str, rule: MethodRule | None, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[_Open]:
        """Everything around a handler: context, rules, metrics, span, log line, and the answer to an error."""
        started = time.perf_counter()
        seconds, open_calls, _ = self._metrics.method(method)
        metadata = dict(context.invocation_metadata() or ())
        span, trace_context = self._tracing.start(method, metadata)
        remaining = context.time_remaining()
        call = Call(
            method=method,
            metadata=metadata,
            trace=trace_context,
            deadline=None if remaining is None else time.monotonic() + remaining,
            draining=self._drain,
        )
        opened = _Open(call, is_foreign=rule is None)
        code = "OK"
        open_calls.inc()
        try:
            if rule is not None:
                _identify(call, rule)
            enter_call(call)
            if span is not None:
                with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
                    yield opened
            else:
                yield opened
        except grpc.aio.AbortError:
            code = _code_name(context)
            raise
        except GeneratorExit:
            code = "CANCELLED"
            raise
        except asyncio.CancelledError:
            if not opened.forced:
                code = "CANCELLED"
                raise
            current = asyncio.current_task()
            if current is not None:
                current.uncancel()
            code = "UNAVAILABLE"
            await _abort(context, errors.ShuttingDown(), call)
        except Exception as error:
            answer = _answer(error)
            code = code_of(answer)
            if code == "INTERNAL":
                _log.error("call failed", method=method, trace_id=call.trace.trace_id, **fault_facts(error))
            await _abort(context, answer, call)
        finally:
            elapsed = time.perf_counter() - started
            open_calls.dec()
            seconds.observe(elapsed)
            self._metrics.handled(method, code)
            self._tracing.end(span, code)
            _log.debug(
                "call",
                method=method,
                code=code,
                seconds=round(elapsed, 6),
                scope_key=call.named_scope.key if call.named_scope is not None else None,
                trace_id=call.trace.trace_id,
            )


class _Open:
    """A call under way."""

    def __init__(self, call: Call, *, is_foreign: bool) -> None:
        self.call = call
        self.is_foreign = is_foreign
        self.forced = False


def _identify(call: Call, rule: MethodRule) -> None:
    """Reads scope and grant from the trusted metadata and holds them against the method's rule (X1, X13)."""
    scope, grant = call.metadata.get(SCOPE_HEADER), call.metadata.get(GRANT_HEADER)
    if isinstance(scope, bytes):
        call.named_scope = parse_scope(scope)
    if isinstance(grant, bytes):
        call.named_grant = parse_grant(grant)
    if rule.scope == ScopeRule.NONE:
        return
    if call.named_scope is None and (rule.scope == ScopeRule.ONE or call.named_grant is None):
        raise errors.ScopeRequired()
    call.check()


def _answer(error: Exception) -> Exception:
    """What the caller is told: a lost database is no fault of the server, everything unknown is."""
    if isinstance(error, errors.ThreadkeepError):
        return error
    if is_connection_lost(error) and not isinstance(error, (OSError, asyncio.TimeoutError)):
        return errors.DatabaseUnavailable()
    return error


async def _abort(context: grpc.aio.ServicerContext, error: Exception, call: Call) -> None:
    status = to_grpc_status(error, call.trace.trace_id)
    await context.abort(status.code, status.details, status.trailing_metadata)


def _code_name(context: grpc.aio.ServicerContext) -> str:
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name
    for candidate in grpc.StatusCode:
        if candidate.value[0] == code:
            return candidate.name
    return "UNKNOWN"
