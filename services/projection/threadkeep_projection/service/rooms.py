"""What servicers reach once the service has started."""

from __future__ import annotations

from dataclasses import dataclass

from threadkeep_chassis.paging import Pager
from threadkeep_projection.commands.following import Following
from threadkeep_projection.commands.freshness import Freshness
from threadkeep_projection.commands.reading import Reading
from threadkeep_projection.commands.rebuilding import Rebuilding
from threadkeep_projection.commands.streaming import Streaming


@dataclass(frozen=True)
class Rooms:
    """The use cases."""

    pager: Pager
    reading: Reading
    freshness: Freshness
    following: Following
    rebuilding: Rebuilding
    streaming: Streaming
