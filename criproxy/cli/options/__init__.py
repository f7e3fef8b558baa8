"""Options and types of options that several commands have."""
