"""Made-up machines and an embedded container runtime."""
