"""Servicers of the projection: they parse, call a use case and render. Nothing else."""
