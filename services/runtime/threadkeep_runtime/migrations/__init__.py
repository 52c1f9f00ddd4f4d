"""How the runtime's tables came to be: Alembic revisions, forward only, frozen once released."""
