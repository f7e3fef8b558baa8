"""A stand-in for loading NVIDIA's file, until criproxy.nvidia loads it."""

from typing import Any

import yaml

from criproxy.nvidia.options import (
    Flags,
    PluginConfig,
    PluginFlags,
    ResourcePattern,
    SharedResource,
    SharedResources,
    Sharing,
)


def config_of(text: str) -> PluginConfig:
    data = yaml.safe_load(text) or {}
    f = data.get("flags") or {}
    p = f.get("plugin") or {}
    strat = p.get("deviceListStrategy", ["envvar"])
    strat = (strat,) if isinstance(strat, str) else tuple(strat)
    plugin = PluginFlags(
        pass_device_specs=p.get("passDeviceSpecs", False),
        device_list_strategy=strat,
        device_id_strategy=p.get("deviceIDStrategy", "uuid"),
        cdi_annotation_prefix=p.get("cdiAnnotationPrefix", "cdi.k8s.io/"),
        shared_devices_allocation_policy=p.get("sharedDevicesAllocationPolicy", "distributed"),
    )
    root = f.get("nvidiaDriverRoot", "/")
    flags = Flags(
        mig_strategy=f.get("migStrategy", "none"),
        mps_root=f.get("mpsRoot", ""),
        nvidia_driver_root=root,
        nvidia_dev_root=f.get("nvidiaDevRoot") or root,
        gdrcopy_enabled=f.get("gdrcopyEnabled", False),
        gds_enabled=f.get("gdsEnabled", False),
        mofed_enabled=f.get("mofedEnabled", False),
        plugin=plugin,
    )
    name = lambda n: n if not n or n.startswith("nvidia.com/") else "nvidia.com/" + n
    pats = lambda key: tuple(
        ResourcePattern(pattern=e["pattern"], name=name(e["name"]))
        for e in ((data.get("resources") or {}).get(key) or [])
    )

    def dev(d: Any) -> Any:
        return tuple(map(str, d)) if isinstance(d, list) else d

    def shared(key: str, default: bool) -> SharedResources | None:
        s = (data.get("sharing") or {}).get(key)
        if not s:
            return None
        return SharedResources(
            rename_by_default=s.get("renameByDefault", False),
            fail_requests_greater_than_one=s.get("failRequestsGreaterThanOne", default),
            resources=tuple(
                SharedResource(
                    name=name(e["name"]),
                    rename=name(e.get("rename", "")),
                    devices=dev(e.get("devices", "all")),
                    replicas=e["replicas"],
                )
                for e in s["resources"]
            ),
        )

    return PluginConfig(
        flags=flags,
        gpu_resources=pats("gpus"),
        mig_resources=pats("mig"),
        sharing=Sharing(time_slicing=shared("timeSlicing", False), mps=shared("mps", True)),
    )
