"""The extended resources that are published, each by a plugin of its own."""
