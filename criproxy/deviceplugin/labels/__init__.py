"""Labels of the node, for the feature discovery."""
