"""Limits and settings (X9)."""

import pytest

from threadkeep_chassis.errors import LimitExceeded
from threadkeep_chassis.limits import Limit, Limits
from threadkeep_chassis.settings import ServerSettings

OWN = Limit("max_entity_bytes", 100, "Split it.")


@pytest.mark.rule("X9")
def test_a_limit_has_a_default_a_setting_and_a_clear_error() -> None:
    assert Limits(OWN)["max_entity_bytes"] == 100
    limits = Limits(OWN, values={"max_entity_bytes": 10})
    limits.check("max_entity_bytes", 10)
    with pytest.raises(LimitExceeded) as caught:
        limits.check("max_entity_bytes", 11)
    assert caught.value.metadata == {
        "limit": "max_entity_bytes", "maximum": "10", "actual": "11", "advice": "Split it."
    }  # fmt: skip
    assert ("max_entity_bytes", 10) in list(limits.items())


@pytest.mark.rule("X9")
def test_an_unknown_or_negative_limit_is_refused_at_start() -> None:
    with pytest.raises(ValueError, match="max_message_bytes"):
        Limits(values={"max_mesage_bytes": 1})
    with pytest.raises(ValueError):
        Limits(OWN, values={"max_entity_bytes": -1})
    with pytest.raises(ValueError, match="one name"):
        Limits(Limit("max_message_bytes", 1, "Say less."))


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADKEEP_GRACE_SECONDS", "7.5")
    monkeypatch.setenv("THREADKEEP_PEERS__CONFIG", "127.0.0.1:7433")
    monkeypatch.setenv("THREADKEEP_LIMITS__MAX_PAGE_SIZE", "10")
    settings = ServerSettings()
    assert settings.grace_seconds == 7.5
    assert settings.peers == {"config": "127.0.0.1:7433"}
    assert settings.limits == {"max_page_size": 10}


@pytest.mark.rule("X11")
def test_settings_never_show_the_database_address() -> None:
    settings = ServerSettings(database_url="postgresql://user:hunter2@db/x")
    assert "hunter2" not in repr(settings)
