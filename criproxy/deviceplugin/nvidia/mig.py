"""MIG: the names of profiles and resources, and which devices count as equal."""

from re import fullmatch

from criproxy.deviceplugin.nvidia.gpus import MigDevice
from criproxy.devices.classes.mig_names import MIG_NAME, is_whole_instance

MIG_RESOURCES = "nvidia.com/mig-"
"""Prefix of the resources of profiles."""
_EIGHTHS = 8
"""A GPU's memory is counted in eighths."""
_MIB_OF_GIB = 1024


def profile_name(
    *, device_memory_mib: int, mig_memory_mib: int, gi_slices: int, ci_slices: int, attribute: str = ""
) -> str:
    """Return the name of a profile: ``1g.5gb``, ``1c.3g.20gb``, ``1g.24gb+me.all``.

    Args:
        device_memory_mib: Memory of the whole GPU; 0 if NVML does not report it.
        mig_memory_mib: Memory of the instance.
        gi_slices: Slices of its GPU instance.
        ci_slices: Slices of its compute instance.
        attribute: Suffix after the size, with its sign: ``+me``, ``-me``, ``+gfx``.
    """
    total_mib = device_memory_mib or mig_memory_mib  # then, it is rounded up to the next GiB
    eighths = -(-_EIGHTHS * mig_memory_mib // total_mib) if total_mib else 0
    total_gib = -(-total_mib // _MIB_OF_GIB)
    size_gb = (eighths * total_gib + _EIGHTHS // 2) // _EIGHTHS  # rounds halves up; round() would round them to even
    compute = "" if ci_slices == gi_slices else f"{ci_slices}c."
    return f"{compute}{gi_slices}g.{size_gb}gb{attribute}"


def compute_slices(profile: str) -> int:
    """Return the number of slices of the compute instance of *profile*; 0 if the name does not contain it."""
    found = fullmatch(MIG_NAME, profile)
    return int(found[1] or found[2]) if found else 0


def mixed_resource(profile: str) -> str | None:
    """Return the resource of a profile with the strategy ``mixed``, including its domain; None if it has none."""
    return f"{MIG_RESOURCES}{profile.replace('+', '.')}" if is_whole_instance(profile) else None


def mig_kind(device: MigDevice) -> tuple[object, ...]:
    """Return the properties that must be equal for all instances with the strategy ``single``.

    The size in a profile's name is relative to the GPU, and therefore less exact than the memory.
    """
    found = fullmatch(MIG_NAME, device.profile)
    slices = (found[1] or found[2], found[2], found[4]) if found else (device.profile,)
    return (*slices, device.memory_mib, *sorted(device.attributes))
