"""Exit codes, and how failures are told: reason, message and advice on stderr, never a traceback."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from typing import Any, NoReturn

import grpc

from threadkeep.errors import ThreadkeepError, WaitTimeout


class Exit(IntEnum):
    """What scripts can tell apart."""

    OK = 0
    REFUSED = 1
    """The server answered with an error that has no code of its own here; its reason is on stderr."""
    USAGE = 2
    """The command line can't be followed, or the server calls an argument invalid."""
    NOT_FOUND = 3
    WAIT_TIMEOUT = 4
    """What was waited for did not happen in time."""
    CONFLICT = 5
    """It exists already, or somebody else changed it: read again and decide anew."""
    UNAVAILABLE = 6
    """The server, or something that it needs, is out of reach."""
    FORBIDDEN = 7
    """No scope, or outside the grant."""
    TASK_ENDED_BADLY = 8
    """The task that was waited for failed, was canceled or was rejected."""
    INPUT_REQUIRED = 9
    """The task that was waited for waits for an answer to a ticket."""


EXIT_HELP = (
    "Exit codes: 0 ok, 1 the server refused, 2 usage, 3 not found, 4 wait timed out, 5 conflict, 6 unavailable, "
    "7 forbidden, 8 the task ended badly, 9 the task waits for an answer, 130 interrupted."
)

_BY_CODE = {
    grpc.StatusCode.INVALID_ARGUMENT: Exit.USAGE,
    grpc.StatusCode.NOT_FOUND: Exit.NOT_FOUND,
    grpc.StatusCode.DEADLINE_EXCEEDED: Exit.WAIT_TIMEOUT,
    grpc.StatusCode.ALREADY_EXISTS: Exit.CONFLICT,
    grpc.StatusCode.ABORTED: Exit.CONFLICT,
    grpc.StatusCode.UNAVAILABLE: Exit.UNAVAILABLE,
    grpc.StatusCode.UNAUTHENTICATED: Exit.FORBIDDEN,
    grpc.StatusCode.PERMISSION_DENIED: Exit.FORBIDDEN,
}

_ADVICE = {
    "SCOPE_REQUIRED": "Name a scope: --scope tenant=acme, or THREADKEEP_SCOPE. The empty one: --scope {} --grant all.",
    "SCOPE_FORBIDDEN": "Name a grant that covers the scope with --grant; `--grant all` covers every one.",
    "SESSION_BUSY": "Wait for the session's task (`threadkeep tasks list --session ...`), or cancel it.",
    "AGENT_UNRESOLVED": "See `threadkeep config list --inherited`, and `threadkeep config explain agent NAME`.",
    "TICKET_ANSWER_INVALID": "See `threadkeep tickets get ID` for the decisions and the schema.",
    "REVISION_CONFLICT": "Read it again, and decide anew.",
    "FILE_MANAGED": "Change the file and apply its directory again.",
}


class UsageProblem(Exception):
    """The command line can't be followed. The message says what to change."""


def exit_code_of(error: ThreadkeepError) -> Exit:
    """The exit code for what a call answered."""
    if isinstance(error, WaitTimeout):
        return Exit.WAIT_TIMEOUT
    return _BY_CODE.get(error.code, Exit.REFUSED)


def advice_for(error: ThreadkeepError, target: str) -> str:
    """What to do about it, if anybody knows."""
    if not error.reason and error.code == grpc.StatusCode.UNAVAILABLE:
        return f"Is threadkeepd running on {target}? `threadkeepd up` starts it; --target says where it is."
    return str(error.metadata.get("advice") or _ADVICE.get(error.reason, ""))


def tell_error(error: ThreadkeepError, target: str, *, as_json: bool) -> NoReturn:
    """Says what the server answered, and ends."""
    advice = advice_for(error, target)
    if as_json:
        violations = [{"field": one.field, "description": one.description} for one in error.violations]
        body: dict[str, Any] = {"reason": error.reason, "code": error.code.name, "message": error.message}
        body |= {"metadata": dict(error.metadata), "violations": violations, "advice": advice}
        print(json.dumps({"error": body}, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"threadkeep: {error}", file=sys.stderr)
        # The limits' own messages end with their advice.
        if advice and advice not in error.message:
            print(f"  {advice}", file=sys.stderr)
    raise SystemExit(int(exit_code_of(error)))


def tell_usage(problem: Exception) -> NoReturn:
    """Says what is wrong with the command line, and ends."""
    print(f"threadkeep: {problem}", file=sys.stderr)
    raise SystemExit(int(Exit.USAGE))
