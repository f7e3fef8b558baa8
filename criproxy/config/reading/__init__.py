"""YAML with positions: documents, mistakes with file, line and column, nearest valid names."""
