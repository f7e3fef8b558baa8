"""What is shown of cards, their users, quotas and incidents."""
