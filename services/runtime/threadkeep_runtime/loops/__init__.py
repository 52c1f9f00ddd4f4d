"""Background work of the runtime: what must happen though nobody asks. Every replica runs it; commits decide."""
