"""Names of resources and references to cards in the file that NVIDIA's plugin accepts."""

import re

from criproxy.deviceplugin.nvidia.go.numbers import decimal

PREFIX = "nvidia.com/"
MAX_NAME = 63
"""In bytes, for a resource's name with its domain."""
SHARED_SUFFIX = ".shared"

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_BARE_UUID = re.compile(r"[0-9a-f]{32}", re.ASCII | re.IGNORECASE)
_URN = "urn:uuid:"
_UUID_LENGTH = 36


def resource_name(name: str) -> str:
    """Return *name* with its domain.

    Raises:
        ValueError: The name is invalid; the message is NVIDIA's.
    """
    full = name if name.startswith(PREFIX) else f"{PREFIX}{name}"
    if len(full.encode()) > MAX_NAME:
        raise ValueError(f"fully-qualified resource name must be {MAX_NAME} characters or less: {full}")
    if not _SUBDOMAIN.fullmatch(full.removeprefix(PREFIX)):
        raise ValueError(
            f"incorrect format for resource name '{full}': behind {PREFIX} there may be lower-case letters, digits, "
            "'-' and '.', and the name and each part between dots begin and end with a letter or a digit"
        )
    return full


def shared_name(name: str) -> str:
    """Return the default name of the resource *name* if its cards are shared; its length is not checked again."""
    return f"{name}{SHARED_SUFFIX}"


def is_card_reference(text: str) -> bool:
    """Whether *text* refers to a card: ``1``, ``1:0``, ``GPU-<uuid>``, ``MIG-<uuid>`` or ``MIG-GPU-<uuid>/3/0``."""
    return decimal(text) is not None or is_mig_index(text) or is_gpu_uuid(text) or is_mig_uuid(text)


def is_mig_index(text: str) -> bool:
    """Whether *text* is the index of a GPU and of a MIG device in it, ``1:0``."""
    gpu, colon, mig = text.partition(":")
    return bool(colon) and decimal(gpu) is not None and decimal(mig) is not None


def is_gpu_uuid(text: str) -> bool:
    """Whether *text* is the UUID of a GPU."""
    return text.startswith("GPU-") and _is_uuid(text.removeprefix("GPU-"))


def is_mig_uuid(text: str) -> bool:
    """Whether *text* is the UUID of a MIG device, in the new or in the old format."""
    if not text.startswith("MIG-"):
        return False
    rest = text.removeprefix("MIG-")
    if _is_uuid(rest):
        return True
    gpu, *instances = rest.split("/", 2)
    return len(instances) == 2 and is_gpu_uuid(gpu) and all(decimal(instance) is not None for instance in instances)


def _is_uuid(text: str) -> bool:
    """Accept all formats of Go's UUID library: plain, without dashes, as a URN, in braces (which it does not check)."""
    if len(text) == _UUID_LENGTH + len(_URN) and text[: len(_URN)].lower() == _URN:
        text = text[len(_URN) :]
    elif len(text) == _UUID_LENGTH + 2:
        text = text[1:-1]
    return bool(_UUID.fullmatch(text) or _BARE_UUID.fullmatch(text))
