"""The use of cards by containers, as the daemon gets and shows it: pure."""
