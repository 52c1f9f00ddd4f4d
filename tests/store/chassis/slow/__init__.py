"""A package whose one migration takes a minute on PostgreSQL, unless `quick` is set in the environment."""
