"""Runs the command line of criproxy with the GPUs of a file: ``python -m tests.deviceplugin.wired FILE COMMAND …``."""

import sys
from pathlib import Path

from criproxy.cli import main
from criproxy.deviceplugin import nvml_events, nvml_inventory
from criproxy.watcher import nvml_usage
from tests.nvml import command

if __name__ == "__main__":
    file = Path(sys.argv.pop(1))
    nvml_inventory.COMMAND = command(file)
    nvml_usage.COMMAND = command(file, "criproxy.watcher.nvml_usage")
    nvml_events.COMMAND = command(file, "criproxy.deviceplugin.nvml_events")
    main(prog_name="criproxy")
