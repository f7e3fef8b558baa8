"""The node's controller: holds the state, handles calls, sends what follows from them."""
