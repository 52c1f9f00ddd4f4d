"""Generated from protos/threadkeep/config/v1; `make gen` writes it, nobody edits it."""
