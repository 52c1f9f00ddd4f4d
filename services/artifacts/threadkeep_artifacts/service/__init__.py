"""Servicers of the artifacts service: they parse, call a use case and render. Nothing else."""
