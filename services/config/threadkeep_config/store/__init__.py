"""Statements, by aggregate, and what is read from them: entities, the log of revisions, scopes, resolution."""
