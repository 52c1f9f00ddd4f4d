"""How the schema came to be: Alembic revisions, oldest first. Frozen history; it never imports `tables`."""
