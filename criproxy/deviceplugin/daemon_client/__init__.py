"""The device plugin's connection to the daemon: reports, free CPUs, lifetime."""
