"""Generated from protos/threadkeep/config; `make gen` writes it, nobody edits it."""
