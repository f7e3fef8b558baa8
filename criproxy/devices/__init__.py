"""Device classes, their evidence in containers, and rewriting of their settings."""
