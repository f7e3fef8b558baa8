"""criproxy as an NRI plugin of the container runtime: the same node behind another front end."""
