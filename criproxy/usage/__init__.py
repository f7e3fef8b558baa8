"""The use of cards by containers, and what follows from it: pure; `watcher` reads the machine."""
