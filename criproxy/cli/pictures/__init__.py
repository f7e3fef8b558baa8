"""SVG pictures of machines and placements, and the page of a load."""
