"""The runtime's truth against ours: resync, adoption, outcomes, exits, drift, the machine."""
