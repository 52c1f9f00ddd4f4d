"""Where content lies: one port (`port.BlobStore`), and the adapter that keeps it in the service's own database (A4)."""
