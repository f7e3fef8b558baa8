"""Programs that exercise criproxy from a checkout; they are never installed."""
