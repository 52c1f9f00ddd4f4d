"""A column, filled in for the rows that are there, and an index that is built without blocking writers."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("things", sa.Column("note", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE things SET note = 'old'")
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            op.create_index("things_by_note", "things", ["note"], postgresql_concurrently=True, if_not_exists=True)
    else:
        op.create_index("things_by_note", "things", ["note"])
