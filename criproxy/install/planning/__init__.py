"""What an installation changes, as a list of steps."""
