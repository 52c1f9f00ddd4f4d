"""Tasks by when they last changed, and messages by their task."""

from alembic import op

revision = "projection_0005"
down_revision = "projection_0004"


def upgrade() -> None:
    """Adds indexes."""
    op.create_index("tasks_by_scope_key_update_time_task_id", "tasks", ["scope_key", "update_time", "task_id"])
    op.create_index(
        "tasks_by_scope_key_session_id_update_time_task_id",
        "tasks",
        ["scope_key", "session_id", "update_time", "task_id"],
    )
    op.create_index(
        "tasks_by_scope_key_agent_name_update_time_task_id",
        "tasks",
        ["scope_key", "agent_name", "update_time", "task_id"],
    )
    op.create_index(
        "tasks_by_scope_key_state_update_time_task_id", "tasks", ["scope_key", "state", "update_time", "task_id"]
    )
    op.create_index("messages_by_scope_key_task_id_position", "messages", ["scope_key", "task_id", "position"])
