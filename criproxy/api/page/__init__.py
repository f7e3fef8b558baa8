"""The page of ``--http``: its files, the JSON that it reads, and the stream of changes that keeps it up to date."""
