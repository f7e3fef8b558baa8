"""Policy files: models, loading with file, line and column, choice per node, schema for editors."""

from criproxy.config.load import load
from criproxy.config.settings import Settings

__all__ = ["Settings", "load"]
