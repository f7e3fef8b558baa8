"""Pictures of placements, for the pages about policies."""
