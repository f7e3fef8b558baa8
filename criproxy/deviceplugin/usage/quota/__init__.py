"""Quotas of memory and cores: who is over, since when, and what happens then."""
