"""A terminal that one program has for itself: keys, painting, and giving it back as it was."""
