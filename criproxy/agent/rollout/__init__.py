"""How a NodePolicy comes into force on this node: which one, when its turn is, and whether it stays."""
