"""The projection service: messages and summaries, rebuildable from the runtime's log."""
