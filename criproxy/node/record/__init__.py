"""The node's state: events applied, kept on disk, and what is published of them: history, log, explanations."""
