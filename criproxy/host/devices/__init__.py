"""Cards of the machine as /dev, /sys, CDI, NVML and the kubelet's checkpoint show them."""
