"""The artifacts service: append-only versions of produced content."""
