"""`make chaos`: kills criproxy in every phase of its work, on a busy node, and has a stranger look at the result."""
