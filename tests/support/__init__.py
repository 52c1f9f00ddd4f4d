"""What tests of every service share: a real PostgreSQL, suites in one process, waiting, and reading errors."""
