"""The Python client of threadkeep. Generated stubs live in threadkeep.<service>.v1."""
