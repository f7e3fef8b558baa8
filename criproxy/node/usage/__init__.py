"""The use of cards by containers, as the watcher reports it, and the files of pods with cards."""
