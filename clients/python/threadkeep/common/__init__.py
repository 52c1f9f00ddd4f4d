"""Generated from protos/threadkeep/common; `make gen` writes it, nobody edits it."""
