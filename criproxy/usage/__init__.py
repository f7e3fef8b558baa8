"""Who uses how much of which card, and what follows from it: pure; `watcher` reads the machine."""
