"""Generated from protos/threadkeep/artifacts; `make gen` writes it, nobody edits it."""
