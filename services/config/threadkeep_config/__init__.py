"""The config service: definitions of agents, tools and providers, and their revisions."""
