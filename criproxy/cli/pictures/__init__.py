"""SVG pictures of machines."""
