"""Generated from protos/threadkeep/runtime/v1; `make gen` writes it, nobody edits it."""
