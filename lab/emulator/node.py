"""Calls about the runtime itself, as the embedded runtime answers them."""

import json

from criproxy.cri import api_pb2 as cri

NAME = "criproxy-sim"
"""What the embedded runtime calls itself, if nothing else is asked for."""


class Node:
    """One coroutine per method; *api_version* is the one of the path, such as ``v1``."""

    def __init__(self, api_version: str, name: str, version: str, program: str) -> None:
        self._api_version = api_version
        self._name, self._version, self._program = name, version, program

    async def version(self, request: cri.VersionRequest) -> cri.VersionResponse:
        """Serve Version; the kubelet takes no other *version* than 0.1.0."""
        return cri.VersionResponse(
            version="0.1.0",
            runtime_name=self._name,
            runtime_version=self._version,
            runtime_api_version=self._api_version,
        )

    async def status(self, request: cri.StatusRequest) -> cri.StatusResponse:
        """Serve Status: always ready."""
        runc = {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": self._program}}
        config = {"containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": runc}}}
        conditions = [cri.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
        return cri.StatusResponse(
            status=cri.RuntimeStatus(conditions=conditions),
            info={"golang": '"none"', "config": json.dumps(config)} if request.verbose else None,
            runtime_handlers=[cri.RuntimeHandler(name=name) for name in ("", "runc")],
        )

    async def runtime_config(self, request: cri.RuntimeConfigRequest) -> cri.RuntimeConfigResponse:
        """Serve RuntimeConfig: the cgroups are cgroupfs paths."""
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS))

    async def update_runtime_config(self, request: cri.UpdateRuntimeConfigRequest) -> cri.UpdateRuntimeConfigResponse:
        """Serve UpdateRuntimeConfig: a pod CIDR means nothing without a network."""
        return cri.UpdateRuntimeConfigResponse()
