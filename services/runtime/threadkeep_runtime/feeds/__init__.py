"""Feeds of events: cursors, the shared tail of the log, subscriptions, and live observations beside them.

They read `store/` and are used by `service/`. Nothing here writes; a feed is never in a writer's way.
"""
