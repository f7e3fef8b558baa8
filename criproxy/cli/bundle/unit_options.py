"""The options of criproxy's units, from their environment files; and files that must not hold a bundle up."""

import os
import shlex
import stat
from pathlib import Path

from criproxy.cli.bundle.settings import Settings
from criproxy.install.planning import paths
from criproxy.install.planning.unit_file import environment_of, flag

VARIABLES = {
    paths.DEFAULTS: "CRIPROXY_OPTIONS",
    "/etc/default/criproxy-device-plugin": "CRIPROXY_DEVICE_PLUGIN_OPTIONS",
}
"""By environment file, the variable that has the options of the unit."""
MAX_FILE_BYTES = 1 << 20


def unit_option(settings: Settings, name: str, file: str = paths.DEFAULTS) -> str:
    """Return the last value of the option ``--name`` in the environment file of a unit; empty without it."""
    try:
        text = regular_text(settings.path(file))
        return flag(shlex.split(environment_of(text).get(VARIABLES[file], "")), name) or ""
    except (OSError, ValueError):
        return ""


def regular_text(path: Path) -> str:
    """Return the text of a file, and not of a pipe or a device, which may never end; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor has no path
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is no regular file")
        content = file.read(MAX_FILE_BYTES + 1)
    text = content[:MAX_FILE_BYTES].decode(errors="replace")
    return text if len(content) <= MAX_FILE_BYTES else f"{text}\n… the file is longer\n"
