"""Which memory nodes a container gets."""
