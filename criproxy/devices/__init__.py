"""Device classes, the evidence of which container got which card, and the rule for what a container may see. Pure."""
