"""Runs the command line of criproxy with the GPUs of a file: ``python -m tests.deviceplugin.wired FILE COMMAND …``."""

import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

from criproxy.cli import main
from criproxy.deviceplugin.cards import inventory, nvml_inventory
from criproxy.deviceplugin.health import nvml_events
from criproxy.deviceplugin.usage import nvml_usage
from tests import failing_reader
from tests.deviceplugin.hosts import PATIENT
from tests.nvml import command

if __name__ == "__main__":
    file = Path(sys.argv.pop(1))
    nvml_inventory.COMMAND = command(file)
    nvml_usage.COMMAND = command(file, "criproxy.deviceplugin.usage.nvml_usage")
    nvml_events.COMMAND = command(file, "criproxy.deviceplugin.health.nvml_events")
    inventory.Machine = partial(inventory.Machine, limits=PATIENT)  # type: ignore[assignment,misc]
    with patch.object(failing_reader.LOAD, "parse", failing_reader.parse):
        main(prog_name="criproxy")
