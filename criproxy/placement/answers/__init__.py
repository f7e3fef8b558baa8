"""Questions to the engine: what fits, what was chosen and why, what a policy would change."""
