"""Device classes, their cards and what of a card is offered."""
