"""How calls travel: methods read from the contract's descriptors, scopes, retries, channels. Nothing here is public."""
