"""Use cases of the artifacts service: uploads, downloads, reads, deletes, and the sweep's steps."""
