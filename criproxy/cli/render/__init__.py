"""What several tables share: console, words, trees, progress."""
