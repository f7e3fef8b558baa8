"""The rules of the device boundary: the section ``devices`` of a policy file, as plain values."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.evidence.device_request import Requester

HideUnallocated = Literal["off", "report", "enforce"]
UserOverride = Literal["keep", "report", "strip"]
Privileged = Literal["allow", "report", "deny"]
OnNoEvidence = Literal["keep", "hide", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletFiles:
    """The files with the kubelet's allocations; an empty path is not read."""

    socket: str = ""
    """The socket of podresources."""
    checkpoint: str = ""
    """The file of the device manager."""
    timeout_s: float = 1.0
    """How long a create waits for both files together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRules:
    """The rules that determine which containers of a node see which accelerators."""

    classes: tuple[DeviceClass, ...]
    hide_unallocated: HideUnallocated = "enforce"
    user_override: UserOverride = "strip"
    privileged: Privileged = "report"
    on_no_evidence: OnNoEvidence = "keep"
    keep_access_on_update: bool = True
    update_without_nodes: bool = False
    exempt_namespaces: tuple[str, ...] = ()
    exempt_images: tuple[str, ...] = ()
    kubelet: KubeletFiles = KubeletFiles()
    offered: tuple[str, ...] = ()
    """The classes whose cards criproxy's own device plugin is to offer."""
    watched: tuple[str, ...] = ()
    """The classes whose quotas are to be watched."""
    without_usage: tuple[str, ...] = ()
    """Those of them whose use nothing reports."""

    def exempt(self, who: Requester) -> str:
        """Return why a container is exempt; empty if it is not."""
        if self.is_exempt_namespace(who.namespace):
            return f"its namespace {who.namespace} is exempt"
        if any(fnmatchcase(image, pattern) for image in who.images for pattern in self.exempt_images):
            return "its image is exempt"
        return ""

    def is_exempt_namespace(self, namespace: str) -> bool:
        """Whether all containers of a namespace are exempt."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.exempt_namespaces)
