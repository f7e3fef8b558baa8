"""Programs that run in the containers of the benefit."""
