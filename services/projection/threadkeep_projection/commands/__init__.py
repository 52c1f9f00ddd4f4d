"""Use cases of the projection: apply events, rebuild, wait until fresh, read, pass a stream on."""
