"""Generated from protos/threadkeep/runtime; `make gen` writes it, nobody edits it."""
