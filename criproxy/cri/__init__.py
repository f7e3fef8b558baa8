"""CRI: messages, methods, translation to the model, rewriting, criproxy's own calls."""
