"""The runtime's rules, pure: values, legal transitions, and decide(view, command) -> commit. No I/O, no clock, no ids."""
