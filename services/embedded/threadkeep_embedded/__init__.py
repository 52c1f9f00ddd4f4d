"""The daemon: all four services in one process, or one of them alone."""
