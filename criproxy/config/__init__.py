"""Policy files: models, loading with file, line and column, choice per node, reload."""
