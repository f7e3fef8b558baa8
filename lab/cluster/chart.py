"""What the Helm chart brings: definitions, rights, the agents' token, and the DaemonSet with the agent.

Its image is not built for this: the agent runs in a container that sees this machine's programs and this checkout.
Everything else of the pod, such as its user, token and mounts, is the chart's.
"""

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from lab.cluster.process import ClusterError
from lab.containerd.containerd import IMAGE
from lab.provenance import ROOT
from tests.packaging import helm

Object = dict[str, Any]
CHART = ROOT / "deploy/chart"
NAMESPACE, ACCOUNT = "kube-system", "criproxy-node"
"""Of the release, and the agents' ServiceAccount in it."""
CONFIGURATIONS = "criproxy-node-devices"
"""The ConfigMap with the configurations of devices."""
NEW = frozenset({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})
"""Kinds that Kubernetes 1.20 does not know."""
_SYSTEM = ("usr", "lib", "lib64")
"""Folders of this machine that Python needs."""


def definitions() -> list[Object]:
    """The CRDs."""
    files = sorted((CHART / "crds").glob("*.yaml"))
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def objects(values: Object) -> list[Object]:
    """What Helm makes of the chart, without what Kubernetes 1.20 does not know.

    Raises:
        ClusterError: Helm is not there, or refuses.
    """
    if not helm.available():
        raise ClusterError(f"there is no Helm in {helm.cache_directory()}: make setup fetches it")
    try:
        found, _ = helm.objects(CHART, values)
    except helm.HelmError as error:
        raise ClusterError(f"Helm refuses the chart: {error}") from None
    return [each for each in found if each["kind"] not in NEW]


def on_this_machine(daemon_set: Object, control: Path, programs: Path, arguments: Sequence[str] = ()) -> Object:
    """The DaemonSet with the agent from this checkout.

    Args:
        daemon_set: the chart's.
        control: the folder with the daemon's socket for the agent.
        programs: a folder that has `wrapper` as ``criproxy``.
        arguments: further ones for the agent.
    """
    changed = copy.deepcopy(daemon_set)
    spec = changed["spec"]["template"]["spec"]
    # Those that change the node need its init process, which is not systemd here.
    spec["initContainers"] = [each for each in spec["initContainers"] if each["name"] == "wait"]
    folders = {"programs": programs, "checkout": ROOT, **{name: Path("/", name) for name in _SYSTEM}}
    for volume in spec["volumes"]:
        if volume["name"] == "control":
            volume["hostPath"]["path"] = str(control)
    spec["volumes"] += [{"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()]
    for container in (*spec["initContainers"], *spec["containers"]):
        container |= {"image": IMAGE, "imagePullPolicy": "Never", "command": ["criproxy"]}
        container["env"].append({"name": "PATH", "value": f"{programs}:/bin"})
        container["volumeMounts"] += [
            {"name": name, "mountPath": str(path), "readOnly": True} for name, path in folders.items()
        ]
    spec["containers"][0]["args"] += list(arguments)
    return changed


def wrapper() -> str:
    """A program ``criproxy`` that runs this checkout's."""
    return f'#!/bin/sh\nexec {sys.executable} -B -P -m criproxy "$@"\n'
