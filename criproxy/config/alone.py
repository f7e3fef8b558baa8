"""The section ``devices`` of a policy file that cannot be used: criproxy must guard cards all the same."""

from criproxy.config.reading.document import parse
from criproxy.config.reading.words import did_you_mean
from criproxy.devices.options.options import DeviceOptions

SECTION = "devices"


def devices_alone(text: str | None) -> DeviceOptions | None:
    """What to go by while the file is not in force.

    Args:
        text: what the file says; None where it cannot be read.

    Returns:
        The section, if it is valid by itself; None if the file can be read and has none; else the defaults: all
        classes that are built in are hidden outside exempt namespaces.
    """
    document = parse(text) if text is not None else None
    if document is None or document.mistakes or not isinstance(document.data, dict):
        return DeviceOptions()
    if document.data.get(SECTION) is None:  # as in a file that is in force
        misspelt = any(did_you_mean(name, [SECTION]) for name in document.data if name != SECTION)
        return DeviceOptions() if misspelt else None
    try:
        options = DeviceOptions.model_validate(document.data[SECTION])
    except ValueError:
        return DeviceOptions()
    return DeviceOptions() if any(options.contradictions()) else options
