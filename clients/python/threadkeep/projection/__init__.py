"""Generated from protos/threadkeep/projection; `make gen` writes it, nobody edits it."""
