"""A service's package with three migrations, for tests of how migrations are run."""
