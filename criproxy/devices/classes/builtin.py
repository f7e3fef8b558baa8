"""The built-in device classes, with the quirks of each vendor.

Hooks read the visible variable differently: the sources are NVIDIA container toolkit 1.20, ascend-docker-runtime,
AMD container toolkit, Habana container runtime 1.15 and Cambricon's device plugin 2.0.
"""

from criproxy.devices.classes.device_class import DeviceClass

NVIDIA = DeviceClass(
    name="nvidia",
    resources=("nvidia.com/gpu*", "nvidia.com/mig-*"),
    visible_env="NVIDIA_VISIBLE_DEVICES",
    hide_value="void",  # "none" would still mount the driver, and an empty value does not replace that of the image
    strip_env=(
        "CUDA_DISABLE_CONTROL",
        "NVIDIA_IMEX_CHANNELS",  # gives access to the memory of cards of other nodes
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_MIG_MONITOR_DEVICES",
        "NVIDIA_NVSWITCH",  # device nodes that control the switches between all cards
    ),
    strip_mount_prefix=("/var/run/nvidia-container-devices",),
    beside_env=(("NVIDIA_IMEX_CHANNELS", b"0"),),  # its plugin refuses any other channel
    beside_mounts=("imex/0",),
    id_format="uuid",
    per_device=("/dev/nvidia{minor}",),
    shared=("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),
    cdi_kinds=(
        "nvidia.com/gpu",
        "runtime.nvidia.com/gpu",
        "management.nvidia.com/gpu",
        "k8s.gpu.nvidia.com/device",
        "k8s.gpu.nvidia.com/claim",
        "k8s.device-plugin.nvidia.com/gpu",
    ),
    cdi_beside=tuple(f"k8s.device-plugin.nvidia.com/{name}" for name in ("imex-channel", "gdrcopy", "gds", "mofed")),
    pci_vendor="0x10de",
)
ASCEND = DeviceClass(
    name="ascend",
    resources=("huawei.com/Ascend*",),
    visible_env="ASCEND_VISIBLE_DEVICES",
    hide_value="void",
    # Other runtimes on such a node take the variable for what it is not: only the vendor's own knows "void".
    runtimes=("ascend*",),
    id_format="index",
    per_device=("/dev/davinci{index}",),
    shared=("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    cdi_kinds=("huawei.com/npu", "ascend.com/npu"),
    pci_vendor="0x19e5",
)
AMD = DeviceClass(
    name="amd",
    resources=("amd.com/gpu*",),
    visible_env="AMD_VISIBLE_DEVICES",
    hide_value="void",  # what it cannot parse shows no card; unset would leave the value of the image
    write_env=False,  # its plugin passes nodes, and its runtime reserves a card for each variable that names it
    strip_env=("DOCKER_RESOURCE_*",),  # obeyed like the variable itself, whatever follows
    id_format="as-is",
    per_device=("/dev/dri/card{index}",),
    shared=("/dev/kfd",),
    cdi_kinds=("amd.com/gpu",),
    pci_vendor="0x1002",
)
INTEL_GPU = DeviceClass(
    name="intel-gpu",
    resources=("gpu.intel.com/i915*", "gpu.intel.com/xe*"),
    id_format="index",
    replica_separator="-",  # card0-1: the second share of card0
    per_device=("/dev/dri/card{index}",),
    cdi_kinds=("intel.com/gpu",),
    pci_vendor="0x8086",
)
INTEL_NPU = DeviceClass(
    name="intel-npu",
    resources=("npu.intel.com/accel*",),
    id_format="index",
    replica_separator="-",
    per_device=("/dev/accel/accel{index}",),
    cdi_kinds=("intel.com/npu",),
    pci_vendor="0x8086",
)
HABANA = DeviceClass(
    name="habana",
    resources=("habana.ai/gaudi*",),
    visible_env="HABANA_VISIBLE_DEVICES",
    hide_value="none",  # unset, empty and "void" all mean every card
    strip_env=("HABANA_VISIBLE_DEVICES*",),  # its runtime reads the first variable with this prefix
    id_format="plugin",
    per_device=("/dev/accel/accel{index}",),
    cdi_kinds=("habana.ai/gaudi", "intel.com/gaudi"),
    pci_vendor="0x1da3",
)
CAMBRICON = DeviceClass(
    name="cambricon",
    resources=("cambricon.com/*",),
    visible_env="CAMBRICON_VISIBLE_DEVICES",  # for people to read: its plugin passes the nodes
    strip_env=("VIRTUAL_DEVICES",),
    id_format="plugin",
    per_device=("/dev/cambricon_dev{index}",),
    shared=("/dev/cambricon_ctl", "/dev/cambricon_ipcm*", "/dev/cambricon_gdr"),
    pci_vendor="0xcabc",
)

BUILTIN = {kind.name: kind for kind in (NVIDIA, ASCEND, AMD, INTEL_GPU, INTEL_NPU, HABANA, CAMBRICON)}
"""By name, in the order in which they are applied."""
