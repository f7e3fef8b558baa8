"""What we know of CRI: messages, methods, translation, rewriting, our own calls."""
