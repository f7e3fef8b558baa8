"""Who uses how much of which card, as the watcher reports it, and the files that say it by pod."""
