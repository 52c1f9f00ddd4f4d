"""Pure rules of config: values, resolution, validation, diffs, what a write and a set do, manifests."""
