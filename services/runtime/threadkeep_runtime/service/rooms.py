"""What servicers need once the database is open; `server` fills it in."""

from __future__ import annotations

from dataclasses import dataclass

from threadkeep_chassis.database import Database
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.paging import Pager
from threadkeep_runtime.commands import Commands
from threadkeep_runtime.domain.webhooks import WebhookRules
from threadkeep_runtime.pipeline import Pipeline
from threadkeep_runtime.service.render import Receipts
from threadkeep_runtime.settings import RuntimeSettings


@dataclass(frozen=True)
class Rooms:
    """Shared by all servicers of one server."""

    database: Database
    commands: Commands
    pipeline: Pipeline
    pager: Pager
    receipts: Receipts
    limits: Limits
    settings: RuntimeSettings
    webhooks: WebhookRules
    """Where webhooks may lead."""
