"""Reads how much each container uses of the machine's cards, and acts on containers over their quotas."""
