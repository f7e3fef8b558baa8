"""How fast the page of ``--http`` is, on a large node."""
