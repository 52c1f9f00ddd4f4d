"""The runtime service: sessions, tasks, runs, tickets, events and checkpoints."""
