"""Everything that decides, pure: the one transition of a node's state, rules, policies, algorithms."""
