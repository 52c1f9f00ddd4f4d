"""Generated from protos/threadkeep/artifacts/v1; `make gen` writes it, nobody edits it."""
