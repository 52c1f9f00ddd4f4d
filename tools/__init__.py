"""What the Makefile and the gates call: generation, drift checks, contract gates, the rule list."""
