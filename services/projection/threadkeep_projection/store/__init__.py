"""Statements of the projection, by aggregate. Every function works on a given connection, inside its transaction."""
