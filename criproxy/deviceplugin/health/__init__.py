"""Which cards are healthy: NVML's events, commands of other vendors, cards that recover."""
