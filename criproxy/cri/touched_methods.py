"""Paths of calls, for modules that need them before the messages of CRI are loaded."""

PACKAGES = ("runtime.v1", "runtime.v1alpha2")
"""The packages that a client may call, the current one first."""

TOUCHED = (
    "ContainerStatus",
    "CreateContainer",
    "GetContainerEvents",
    "PodSandboxStatus",
    "RemoveContainer",
    "RemovePodSandbox",
    "RestorePod",
    "RunPodSandbox",
    "StartContainer",
    "StopContainer",
    "StopPodSandbox",
    "UpdateContainerResources",
    "UpdatePodSandboxResources",
)
"""The methods of RuntimeService whose calls the controller may hold, watch or edit, in any mode."""


def call_paths(service: str, name: str) -> tuple[str, ...]:
    """Return the paths of one method, one for each package in `PACKAGES`."""
    return tuple(f"/{package}.{service}/{name}" for package in PACKAGES)


def touched_paths() -> frozenset[str]:
    """Return the paths of the methods in `TOUCHED`."""
    return frozenset(path for name in TOUCHED for path in call_paths("RuntimeService", name))
