"""Device classes, the evidence of who was given what, and the rule for what a container may see. Pure."""
