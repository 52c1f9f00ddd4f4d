"""What standard clients speak: protocols of others, served over the same use cases."""
