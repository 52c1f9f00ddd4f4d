"""Fixtures for every test: a real PostgreSQL, a suite on each backend and topology, databases, and processes.

A test that takes `suite` or `shared_suite` runs once for each backend and topology, unless it says otherwise:
`@pytest.mark.suite(backends=["postgres"], topologies=["split"])`. A test that takes `database_url` runs on each
backend.
"""

import itertools
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.support.databases import BACKENDS, Databases
from tests.support.postgres import Postgres
from tests.support.processes import Processes
from tests.support.suite import SERVICES, TOPOLOGIES, Suite

# Timing never decides a test: a busy machine generates slowly and answers late. The gate generates the same examples
# for the same code; `--hypothesis-profile=explore` looks for new ones.
hypothesis_settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.register_profile(
    "same", hypothesis_settings.get_profile("explore"), derandomize=True, database=None
)
hypothesis_settings.load_profile("same")

# A line per call would be kept with every test that passes: hundreds of megabytes in a whole run.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--pooler`: suites on PostgreSQL reach it through a PgBouncer in transaction mode (B43)."""
    parser.addoption("--pooler", action="store_true", help="put PgBouncer in front of PostgreSQL")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Spreads tests over backends and topologies."""
    marker = metafunc.definition.get_closest_marker("suite")
    wanted: dict[str, Any] = dict(marker.kwargs) if marker else {}
    backends = wanted.get("backends", BACKENDS)
    if "backend_and_topology" in metafunc.fixturenames:
        pairs = list(wanted.get("pairs") or itertools.product(backends, wanted.get("topologies", TOPOLOGIES)))
        names = [f"{backend}-{topology}" for backend, topology in pairs]
        metafunc.parametrize("backend_and_topology", pairs, ids=names, scope="session")
    elif "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", backends, scope="session")


@pytest.fixture(scope="session")
def databases(pytestconfig: pytest.Config) -> Iterator[Databases]:
    """Makes databases of every backend; the PostgreSQL server starts when one of its own is asked for."""
    made = Databases(pooled=pytestconfig.getoption("--pooler"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres(databases: Databases) -> Postgres:
    """The PostgreSQL server of this test run."""
    return databases.postgres


@pytest.fixture
async def suite(
    request: pytest.FixtureRequest, databases: Databases, backend_and_topology: tuple[str, str]
) -> AsyncIterator[Suite]:
    """A running suite with a database of its own; it may be restarted, and broken.

    `@pytest.mark.suite(settings={"runtime": {...}})` gives its services other settings, `services=["artifacts"]` starts
    only some of them.
    """
    wanted = _wanted(request)
    running = await Suite.start(
        databases, *backend_and_topology, wanted.get("settings"), wanted.get("services", SERVICES)
    )
    yield running
    await running.close()


@pytest.fixture(scope="session")
async def shared_suites(databases: Databases) -> AsyncIterator[dict[tuple[object, ...], Suite]]:
    """The suites that `shared_suite` started, by backend, topology, services and settings; they end before their
    databases."""
    suites: dict[tuple[object, ...], Suite] = {}
    yield suites
    for running in suites.values():
        await running.close()


@pytest.fixture
async def shared_suite(
    request: pytest.FixtureRequest,
    shared_suites: dict[tuple[object, ...], Suite],
    databases: Databases,
    backend_and_topology: tuple[str, str],
) -> Suite:
    """A running suite that other tests use as well: work in a scope of your own, and leave it as it is.

    pytest runs the tests of a backend and topology together; when it comes to the next, those before are closed.
    """
    wanted = _wanted(request)
    services, settings = tuple(wanted.get("services", SERVICES)), wanted.get("settings")
    key = (*backend_and_topology, *services, json.dumps(settings, sort_keys=True))
    for other in [other for other in shared_suites if other[:2] != backend_and_topology]:
        await shared_suites.pop(other).close()
    if key not in shared_suites:
        shared_suites[key] = await Suite.start(databases, *backend_and_topology, settings, services)
    return shared_suites[key]


def _wanted(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("suite")
    return dict(marker.kwargs) if marker else {}


@pytest.fixture
async def database_url(databases: Databases, backend: str) -> AsyncIterator[str]:
    """The address of an empty database, for tests of the chassis and of stores."""
    url = await databases.empty(backend)
    yield url
    await databases.drop(url)


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    """Starts real processes, and leaves none behind."""
    started = Processes()
    yield started
    await started.close()
