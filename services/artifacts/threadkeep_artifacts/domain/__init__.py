"""Artifacts as plain values and decisions: what a version is, what may be written, how content is cut and checked."""
