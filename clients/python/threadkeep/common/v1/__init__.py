"""Generated from protos/threadkeep/common/v1; `make gen` writes it, nobody edits it."""
