"""`criproxy top`: values → lines of styled text that fit into a terminal of any size. Pure."""
