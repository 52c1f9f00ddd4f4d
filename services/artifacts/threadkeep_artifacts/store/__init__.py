"""Statements of the artifacts service, by aggregate. Every one works inside the caller's transaction."""
