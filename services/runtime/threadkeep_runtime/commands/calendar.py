"""When cron expressions fire: cronsim, which reads them as Debian's cron does, clock changes included (R24)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from threadkeep_chassis.errors import FieldInvalid

# How far back the latest fires are looked for, step by step: a window holds some dozens of times as many as the one
# before, so that what happens each minute needs no look at a year.
_WINDOWS = tuple(timedelta(days=days) for days in (1 / 24, 1, 31, 366, 366 * 8))

FIELDS = 5


class Calendar:
    """The times of a cron expression in a time zone, in UTC."""

    def __init__(self, cron: str, time_zone: str) -> None:
        """Raises FieldInvalid for `cron` or `time_zone`."""
        self._cron = cron
        try:
            self._zone = ZoneInfo(time_zone)
        except (LookupError, ValueError, OSError) as error:
            raise FieldInvalid("time_zone", "is an IANA time zone, such as Europe/Berlin") from error
        if len(cron.split()) != FIELDS:
            # The library would take a sixth one, for seconds.
            raise FieldInvalid("cron", "is five fields: minute, hour, day of month, month, day of week")
        try:
            CronSim(cron, datetime(2026, 1, 1, tzinfo=self._zone))
        except CronSimError as error:
            raise FieldInvalid("cron", f"is five fields as Debian's cron reads them: {error}") from error

    def after(self, moment: datetime) -> datetime | None:
        """The first fire later than this; None if there is none for 50 years."""
        return next(self._from(moment), None)

    def latest(self, first: datetime, until: datetime, count: int) -> list[datetime]:
        """The latest `count` fires from `first`, which is one, to `until`, oldest first."""
        found: list[datetime] = []
        for window in _WINDOWS:
            start = max(first - timedelta(microseconds=1), until - window)
            found = []
            for fire in self._from(start):
                if fire > until:
                    break
                found.append(fire)
            if len(found) >= count or start < first:
                break
        return found[-count:]

    def _from(self, moment: datetime) -> Iterator[datetime]:
        for fire in CronSim(self._cron, moment.astimezone(self._zone)):
            yield fire.astimezone(UTC)
