"""Plumbing that every service uses and that knows no resource."""
