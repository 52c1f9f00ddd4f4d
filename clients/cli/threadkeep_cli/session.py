"""What every command has: where the server is, in which scope it works, and how answers are shown.

`@command(app)` gives a function these options beside its own; they may also stand before the command's name.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import typer

from threadkeep import RetryPolicy
from threadkeep.client import DEFAULT_TARGET, AsyncClient, Client
from threadkeep.errors import ThreadkeepError
from threadkeep_cli import parsing
from threadkeep_cli.exits import Exit, UsageProblem, tell_error, tell_usage
from threadkeep_cli.output import Output, Printer

_PANEL = "Common options"

COMMON: dict[str, tuple[type, tuple[str, ...], str]] = {
    "target": (
        str,
        ("--target", "--address"),
        f"host:port of all services, or runtime=host:port,config=... (default {DEFAULT_TARGET})",
    ),
    "scope": (str, ("--scope",), "tenant=acme,user=u1; the empty scope is {}"),
    "grant": (str, ("--grant",), "all, or scopes separated by ;"),
    "timeout": (float, ("--timeout",), "seconds for one call (default 30)"),
    "output": (Output, ("--output", "-o"), "table, or json for scripts"),
}
"""Name: type, flags, help. Each can also come from the environment, as THREADKEEP_TARGET and so on."""


def _parameters(*, from_environment: bool) -> list[inspect.Parameter]:
    found = []
    for name, (kind, flags, text) in COMMON.items():
        variable = f"THREADKEEP_{name.upper()}"
        option = typer.Option(
            *flags,
            # Read at the top alone: else it would overrule an option that stands before the command's name.
            envvar=variable if from_environment else None,
            help=text if from_environment else f"{text} [{variable}]",
            rich_help_panel=_PANEL,
        )
        annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
        found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return found


CONNECT_SECONDS = 3.0
"""How long a command tries to reach a server that does not answer at all."""


@dataclass(frozen=True)
class _Retries(RetryPolicy):
    """A person waits: a server that can't be reached is said so soon. What a server asked for is still retried."""

    until: float = field(default_factory=lambda: time.monotonic() + CONNECT_SECONDS)

    def retries(self, error: ThreadkeepError) -> bool:
        """See RetryPolicy."""
        return super().retries(error) and (bool(error.reason) or time.monotonic() < self.until)


@dataclass(frozen=True)
class Session:
    """One invocation of the command line."""

    target: str | None = None
    scope: str | None = None
    grant: str | None = None
    timeout: float | None = None
    output: Output | None = None

    @property
    def address(self) -> str:
        """Where the server is, as it was said."""
        return self.target or DEFAULT_TARGET

    @cached_property
    def show(self) -> Printer:
        """Shows answers."""
        return Printer(self.output or Output.TABLE)

    @cached_property
    def client(self) -> Client:
        """The client. Raises UsageProblem."""
        return Client(parsing.parse_target(self.address), retry=_Retries(), **self._identity())

    @property
    def patient_client(self) -> Client:
        """The client for feeds, which outlive a restart of the server."""
        return self.client.with_options(retry=True)

    def async_client(self) -> AsyncClient:
        """A client for asyncio. Raises UsageProblem."""
        return AsyncClient(parsing.parse_target(self.address), **self._identity())

    def _identity(self) -> dict[str, Any]:
        return {
            "scope": None if self.scope is None else parsing.parse_scope(self.scope),
            "grant": None if self.grant is None else parsing.parse_grant(self.grant),
            "timeout": self.timeout if self.timeout is not None else 30.0,
        }

    def close(self) -> None:
        """Closes the client, if one was made."""
        made = self.__dict__.get("client")
        if made is not None:
            made.close()


_context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def _declare(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    """Gives a function of keyword arguments the signature that Typer reads."""
    function.__signature__ = inspect.Signature([_context, *parameters])  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in (_context, *parameters)}


def common_options(context: typer.Context, **given: Any) -> None:
    """Remembers options that stand before the command's name, or in the environment."""
    context.obj = {name: value for name, value in given.items() if value is not None}


_declare(common_options, _parameters(from_environment=True))


def command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a function whose first parameter is the Session as a command, with the common options beside its own."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        names = [parameter.name for parameter in own]

        def run(**given: Any) -> None:
            context: typer.Context = given.pop("context")
            before = context.find_root().obj or {}
            arguments = {key: given[key] for key in names}
            session = Session(**{key: before.get(key) if given[key] is None else given[key] for key in COMMON})
            _finish(session, lambda: function(session, **arguments))

        keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        _declare(run, [*keyword, *_parameters(from_environment=False)])
        run.__doc__ = function.__doc__
        app.command(name or function.__name__.rstrip("_").replace("_", "-"))(run)
        return function

    return decorate


def _finish(session: Session, work: Callable[[], None]) -> None:
    """Runs a command; its failures become a line on stderr and an exit code."""
    try:
        work()
    except ThreadkeepError as error:
        tell_error(error, session.address, as_json=session.show.is_json)
    except (UsageProblem, ValueError, LookupError) as problem:
        tell_usage(problem)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Whoever read us has enough; nothing may be flushed into the closed pipe at exit.
        sys.stdout = None
        raise SystemExit(0) from None
    except OSError as problem:
        print(f"threadkeep: {problem}", file=sys.stderr)
        raise SystemExit(int(Exit.REFUSED)) from None
    finally:
        session.close()
