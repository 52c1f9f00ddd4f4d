"""Generated from protos/threadkeep/projection/v1; `make gen` writes it, nobody edits it."""
