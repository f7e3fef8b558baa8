"""What the device plugin reports and asks on the control socket: cards, usage, quotas."""
