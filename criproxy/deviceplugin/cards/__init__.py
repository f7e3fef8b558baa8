"""Which cards the node has, and which of them are offered."""
