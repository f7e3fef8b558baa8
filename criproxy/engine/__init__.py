"""The one transition of a node's state: pure, the same for proxy, simulator and tests."""
