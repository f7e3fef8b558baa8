"""MIG: the names of profiles and resources, and which devices count as equal."""

from re import fullmatch

from criproxy.nvidia.gpus import MigDevice

MIG_RESOURCES = "nvidia.com/mig-"
"""Prefix of the resources of profiles."""
_PROFILE = r"(?:([0-9]+)c\.)?([0-9]+)g\.([0-9]+)gb([+-].*)?"
_EIGHTHS = 8
"""A GPU's memory is counted in eighths."""
_MIB_OF_GIB = 1024


def profile_name(
    *, device_memory_mib: int, mig_memory_mib: int, gi_slices: int, ci_slices: int, attribute: str = ""
) -> str:
    """Return the name of a profile: ``1g.5gb``, ``1c.3g.20gb``, ``1g.24gb+me.all``.

    Args:
        device_memory_mib: Memory of the whole GPU.
        mig_memory_mib: Memory of the instance.
        gi_slices: Slices of its GPU instance.
        ci_slices: Slices of its compute instance.
        attribute: Suffix after the size, with its sign: ``+me``, ``-me``, ``+gfx``.
    """
    eighths = -(-_EIGHTHS * mig_memory_mib // device_memory_mib)
    total_gib = -(-device_memory_mib // _MIB_OF_GIB)
    size_gb = (eighths * total_gib + _EIGHTHS // 2) // _EIGHTHS  # rounds halves up; round() would round them to even
    compute = "" if ci_slices == gi_slices else f"{ci_slices}c."
    return f"{compute}{gi_slices}g.{size_gb}gb{attribute}"


def is_whole_instance(profile: str) -> bool:
    """Whether the compute instance of *profile* is its whole GPU instance; others have no resource of their own."""
    found = fullmatch(_PROFILE, profile)
    return found is not None and found[1] in (None, found[2])


def compute_slices(profile: str) -> int:
    """Return the number of slices of the compute instance of *profile*; 0 if the name does not contain it."""
    found = fullmatch(_PROFILE, profile)
    return int(found[1] or found[2]) if found else 0


def mixed_resource(profile: str) -> str | None:
    """Return the resource of a profile with the strategy ``mixed``, including its domain; None if it has none."""
    return f"{MIG_RESOURCES}{profile.replace('+', '.')}" if is_whole_instance(profile) else None


def mig_kind(device: MigDevice) -> tuple[object, ...]:
    """Return the properties that must be equal for all instances with the strategy ``single``.

    The size in a profile's name is relative to the GPU, and therefore less exact than the memory.
    """
    found = fullmatch(_PROFILE, device.profile)
    slices = (found[1] or found[2], found[2], found[4]) if found else (device.profile,)
    return (*slices, device.memory_mib, *sorted(device.attributes))
