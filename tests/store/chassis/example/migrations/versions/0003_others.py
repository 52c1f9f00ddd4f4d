"""Another table."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import JsonDocument, Key

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "others",
        sa.Column("id", Key(), primary_key=True),
        sa.Column("thing", Key(), sa.ForeignKey("things.id"), nullable=False),
        sa.Column("document", JsonDocument()),
    )
    op.create_index("others_by_thing", "others", ["thing"])
