"""Calendars over clock changes, and which fires are made after an outage (R24)."""

from datetime import UTC, datetime, timedelta

import pytest

from threadkeep_chassis.errors import FieldInvalid
from threadkeep_runtime.commands.calendar import Calendar
from threadkeep_runtime.domain.schedules import chosen_fires

GRACE = timedelta(seconds=60)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(cron: str, zone: str, after: str, count: int) -> list[str]:
    calendar, found, moment = Calendar(cron, zone), [], utc(after)
    for _ in range(count):
        following = calendar.after(moment)
        assert following is not None
        assert following.tzinfo is UTC
        found.append(f"{following:%m-%d %H:%M}")
        moment = following
    return found


@pytest.mark.rule("R24", "X10")
@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # Berlin's clocks go from 02:00 to 03:00 at 01:00 UTC: what was due at 02:30 fires right after the gap.
        ("30 2 * * *", "2026-03-28T02:00", ["03-29 01:00", "03-30 00:30"]),
        ("0 3 * * *", "2026-03-28T03:00", ["03-29 01:00", "03-30 01:00"]),
        # They go from 03:00 back to 02:00 at 01:00 UTC: 02:30 comes twice, and fires once, the first time.
        ("30 2 * * *", "2026-10-24T02:00", ["10-25 00:30", "10-26 01:30"]),
        # What fires at every hour goes by real time: none is left out, none is doubled.
        ("30 * * * *", "2026-03-29T00:00", ["03-29 00:30", "03-29 01:30", "03-29 02:30"]),
        ("*/30 * * * *", "2026-10-24T23:45", ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30"]),
        ("0 8 * * MON-FRI", "2026-01-02T12:00", ["01-05 07:00", "01-06 07:00"]),
    ],
)
def test_a_clock_change_doubles_no_fire_and_loses_none(cron: str, after: str, expected: list[str]) -> None:
    assert fires(cron, "Europe/Berlin", after, len(expected)) == expected


@pytest.mark.rule("R24")
def test_a_fire_that_is_due_now_is_not_the_next_one() -> None:
    assert fires("0 * * * *", "UTC", "2026-01-01T10:00", 1) == ["01-01 11:00"]
    assert Calendar("0 * * * *", "UTC").after(utc("2026-01-01T09:59:59.999")) == utc("2026-01-01T10:00")


@pytest.mark.rule("R24", "X9")
@pytest.mark.parametrize(("cron", "first"), [("* * * * *", "2025-01-01T00:00"), ("0 0 1 1 *", "2020-01-01T00:00")])
def test_the_latest_fires_of_a_long_outage_are_found_without_going_through_all(cron: str, first: str) -> None:
    calendar, until = Calendar(cron, "UTC"), utc("2026-06-01T12:00:30")
    latest = calendar.latest(utc(first), until, 5)
    assert len(latest) == 5
    assert latest == sorted(latest)
    following = calendar.after(latest[-1])
    assert following is not None
    assert latest[-1] <= until < following
    assert calendar.latest(utc("2026-06-01T11:59"), until, 5) == (
        [utc("2026-06-01T11:59"), utc("2026-06-01T12:00")] if cron == "* * * * *" else []
    )


@pytest.mark.rule("R24", "X6")
@pytest.mark.parametrize("cron", ["", "* * * *", "* * * * * *", "61 * * * *", "@daily", "a b c d e", "0 0 30 2 *"])
def test_what_is_no_calendar_is_refused(cron: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        Calendar(cron, "UTC")
    assert refused.value.field == "cron"


@pytest.mark.rule("R24", "X6")
@pytest.mark.parametrize("zone", ["", "Berlin", "/etc/passwd", "../x", "Europe", "UTC\x00"])
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        Calendar("* * * * *", zone)
    assert refused.value.field == "time_zone"


@pytest.mark.rule("R24")
@pytest.mark.parametrize(
    ("policy", "ages", "expected"),
    [
        ("SKIP", [600, 300], []),
        ("SKIP", [600, 30], [30]),
        ("SKIP", [60, 0], [60, 0]),
        ("ONCE", [900, 600, 300], [300]),
        ("ONCE", [900, 600, 10], [10]),
        ("ONCE", [10], [10]),
        ("ALL", [900, 600, 300], [600, 300]),
        ("ALL", [900, 600, 300, 10], [600, 300, 10]),
        ("ALL", [], []),
    ],
)
def test_a_policy_chooses_among_the_fires_that_are_due(policy: str, ages: list[int], expected: list[int]) -> None:
    now = utc("2026-01-01T00:00")
    due = [now - timedelta(seconds=age) for age in ages]
    assert chosen_fires(policy, due, now, GRACE, 2) == [now - timedelta(seconds=age) for age in expected]
