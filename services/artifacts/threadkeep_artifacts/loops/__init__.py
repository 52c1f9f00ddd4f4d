"""Background work of the artifacts service: the sweep and the purge of receipts."""
