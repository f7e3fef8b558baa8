"""What the device plugin publishes and the daemon enforces: plans, profiles, sharing."""
