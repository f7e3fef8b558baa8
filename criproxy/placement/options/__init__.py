"""Options and annotations that several policies have."""
