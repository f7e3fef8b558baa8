"""``criproxy controls``: applies what classes set outside of CRI. It has the rights for that; the daemon has none."""
