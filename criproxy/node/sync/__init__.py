"""The runtime's truth against ours: resync, adoption, outcomes, exit events, drift, the machine."""
