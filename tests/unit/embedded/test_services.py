"""What the daemon's command line says becomes services, or is refused in words before anything is opened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from threadkeep_embedded import serving
from threadkeep_embedded.exits import Exit, told_failures
from threadkeep_embedded.services import SERVICES, Misconfigured, Told, build_all, parse_assignments, places
from threadkeep_embedded.shares import shared_out

LISTEN = "127.0.0.1:0"
MEMORY = places(SERVICES, database="memory:")


def test_a_data_directory_holds_a_file_per_service(tmp_path: Path) -> None:
    found = places(SERVICES, database=None, data_dir=tmp_path)
    assert [place.file for place in found] == [tmp_path / f"{service}.db" for service in SERVICES]
    assert all(place.url == f"sqlite:///{place.file}" for place in found)


def test_one_postgresql_database_holds_all_four_and_migrations_go_past_the_pooler() -> None:
    found = places(SERVICES, database="postgresql://pooler/x", direct="postgresql://server/x")
    assert {place.url for place in found} == {"postgresql://pooler/x"}
    assert {place.migration_url for place in found} == {"postgresql://server/x"}


@pytest.mark.rule("X9")
def test_settings_and_limits_go_to_the_services_that_have_them() -> None:
    told = Told(LISTEN, {"config": "a:1"}, {"lease_ttl_seconds": 7}, {"max_artifact_bytes": 5, "max_page_size": 9})
    built = {service.name: (service, settings) for service, settings in build_all(MEMORY, told)}
    assert built["runtime"][1].lease_ttl_seconds == 7  # type: ignore[attr-defined]
    assert built["artifacts"][0].limits["max_artifact_bytes"] == 5
    assert {service.limits["max_page_size"] for service, _ in built.values()} == {9}
    assert built["runtime"][1].peers["config"] == "a:1"


def test_assignments_are_json_where_they_can_be() -> None:
    assert parse_assignments(["a=1", "b=x=y", "c=[1]"], "--set") == {"a": 1, "b": "x=y", "c": [1]}
    with pytest.raises(Misconfigured):
        parse_assignments(["nothing"], "--set")


def _up(told: Told, where: Any = MEMORY) -> None:
    serving.run(where, told, migrates=False, ready_file=None)


@pytest.mark.rule("X13")
@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: _up(Told("0.0.0.0:0")), "refusing to listen"),
        (lambda: _up(Told("[::]:0")), "refusing to listen"),
        (lambda: _up(Told("192.0.2.1:7433")), "refusing to listen"),
        (lambda: _up(Told("nonsense")), "no address"),
        (lambda: _up(Told(LISTEN), places(["runtime"], database="memory:")), "--config-address"),
        (lambda: _up(Told(LISTEN), places(["projection"], database="memory:")), "--runtime-address"),
        (lambda: _up(Told(LISTEN), places(["config"], database="mysql://x")), "postgresql://"),
        (lambda: _up(Told(LISTEN, settings={"nonsense": 1})), "nonsense"),
        (lambda: _up(Told(LISTEN, limits={"nonsense": 1})), "nonsense"),
        (lambda: _up(Told(LISTEN, settings={"lease_ttl_seconds": 0})), "lease_ttl_seconds"),
        (lambda: places(SERVICES, database="sqlite:///one.db"), "--data-dir"),
        (lambda: places(SERVICES, database=None), "--database URL or --data-dir"),
        (lambda: places(SERVICES, database="memory:", data_dir=Path("x")), "one of them"),
    ],
)
def test_what_can_not_be_followed_is_a_usage_error(
    attempt: Callable[[], Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, told_failures():
        attempt()
    assert ended.value.code == Exit.USAGE
    assert words in capsys.readouterr().err


@pytest.mark.rule("R22")
@pytest.mark.parametrize(
    ("database", "settings", "listen", "message"),
    [
        ("memory:", {}, LISTEN, "rule R22"),
        ("sqlite:///x.db", {}, LISTEN, "rule R22"),
        ("postgresql://x/y", {}, "unix:/tmp/x", "--listen is host:port"),
        ("postgresql://x/y", {"http_listen": "unix:/tmp/x"}, LISTEN, "--http-listen is host:port"),
        ("postgresql://x/y", {"database_pool_size": 2}, LISTEN, "database_pool_size"),
    ],
)
def test_what_several_processes_can_not_share_is_refused(
    database: str, settings: dict[str, Any], listen: str, message: str
) -> None:
    told = Told(listen, {"runtime": "a:1"}, settings)
    where = places(["projection"], database=database)
    built = [one for _, one in build_all(where, told)]
    with pytest.raises(Misconfigured, match=message), shared_out(where, told, built, 3):
        pass


@pytest.mark.rule("R22")
def test_several_processes_share_ports_and_database_sessions() -> None:
    settings = {"metrics_listen": "127.0.0.1:9100", "http_listen": "127.0.0.1:0", "database_pool_size": 7}
    told = Told(LISTEN, {"runtime": "a:1"}, settings)
    where = places(["projection"], database="postgresql://x/y")
    with shared_out(where, told, [one for _, one in build_all(where, told)], 3) as parts:
        assert len({(part.listen, part.settings["http_listen"]) for part in parts}) == 1
        assert not parts[0].listen.endswith(":0")
        assert [part.settings["metrics_listen"] for part in parts] == [
            f"127.0.0.1:{9100 + index}" for index in range(3)
        ]
        assert all(part.settings["database_pool_size"] == 2 and part.settings["reuse_port"] for part in parts)
