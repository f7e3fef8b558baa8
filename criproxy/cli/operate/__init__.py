"""Commands that run or change something on the node: serve, install, release, reload and their like."""
