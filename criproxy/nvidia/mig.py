"""MIG: the names of profiles and resources, and what makes two instances the same."""

from re import fullmatch

from criproxy.nvidia.gpus import MigDevice

MIG_RESOURCES = "nvidia.com/mig-"
"""What the resources of profiles begin with."""
_PROFILE = r"(?:([0-9]+)c\.)?([0-9]+)g\.([0-9]+)gb([+-].*)?"
_EIGHTHS = 8
"""A GPU's memory is counted in eighths."""
_MIB_OF_GIB = 1024


def profile_name(
    *, device_memory_mib: int, mig_memory_mib: int, gi_slices: int, ci_slices: int, attribute: str = ""
) -> str:
    """The name of a profile: ``1g.5gb``, ``1c.3g.20gb``, ``1g.24gb+me.all``.

    Args:
        device_memory_mib: of the whole GPU.
        mig_memory_mib: of the instance.
        gi_slices: slices of its GPU instance.
        ci_slices: slices of its compute instance.
        attribute: what follows the size, with its sign: ``+me``, ``-me``, ``+gfx``.
    """
    eighths = -(-_EIGHTHS * mig_memory_mib // device_memory_mib)
    total_gib = -(-device_memory_mib // _MIB_OF_GIB)
    size_gb = (eighths * total_gib + _EIGHTHS // 2) // _EIGHTHS  # a half is rounded up; round() would make it even
    compute = "" if ci_slices == gi_slices else f"{ci_slices}c."
    return f"{compute}{gi_slices}g.{size_gb}gb{attribute}"


def is_whole_instance(profile: str) -> bool:
    """Whether the compute instance of *profile* is all of its GPU instance; others have no resource of their own."""
    found = fullmatch(_PROFILE, profile)
    return found is not None and found[1] in (None, found[2])


def compute_slices(profile: str) -> int:
    """How many of its GPU's slices the compute instance of *profile* has; 0 where the name does not tell."""
    found = fullmatch(_PROFILE, profile)
    return int(found[1] or found[2]) if found else 0


def mixed_resource(profile: str) -> str | None:
    """The resource of a profile under the strategy ``mixed``, with its domain; None where it has none."""
    return f"{MIG_RESOURCES}{profile.replace('+', '.')}" if is_whole_instance(profile) else None


def kind_of(device: MigDevice) -> tuple[object, ...]:
    """What the strategy ``single`` requires to be the same for all instances: what NVML says of them.

    The size in a profile's name is relative to the GPU, and so says less than the memory does.
    """
    found = fullmatch(_PROFILE, device.profile)
    slices = (found[1] or found[2], found[2], found[4]) if found else (device.profile,)
    return (*slices, device.memory_mib, *sorted(device.attributes))
