"""The values of the metrics about the use of the node and of vGPUs."""

from typing import TYPE_CHECKING

from criproxy.api.devices.usage import usage_rows
from criproxy.devices.plugin.published import free_vgpus
from criproxy.model.text.bounded import bounded_text
from criproxy.model.workload import ContainerState
from criproxy.node.controller import Controller

if TYPE_CHECKING:  # prometheus_client is loaded only for metrics
    from criproxy.api.metrics.vgpu_metrics import Signals

MOST_LABEL = 253
"""The longest label, in characters: Kubernetes accepts no longer name."""


def measure_use(controller: Controller) -> "Signals":
    """Return the values of all metrics in `api.metrics.vgpu_metrics`."""
    from criproxy.api.metrics.vgpu_metrics import Signals, VgpuUse

    usage, plugin = controller.card_usage, controller.device_plugin
    found = {}
    for row in usage_rows(controller):
        quota, container = row.grant.quota, row.container
        if quota is None or container.state is ContainerState.EXITED:
            continue
        names = (container.namespace, container.pod_name, container.name, row.grant.kind, quota.profile, row.card)
        labels = [bounded_text(each, MOST_LABEL) for each in names]
        found[*labels] = VgpuUse(  # one for each set of labels: two attempts of a container have the same names
            labels=labels,
            memory_mib=row.use.memory_mib if row.use else None,
            memory_limit_mib=row.memory_limit_mib,
            cores_percent=row.use.cores_percent if row.use else None,
            cores_limit_percent=row.cores_limit_percent,
        )
    given = controller.devices.ids_given(plugin.ids())
    return Signals(
        node_cpu_ratio=controller.node_use.cpu_ratio(),
        node_memory_ratio=controller.node_use.memory_ratio(),
        vgpus=tuple(found.values()),
        free=free_vgpus(plugin.report, given) if plugin.report and plugin.runs else {},
        watcher_up=usage.is_current if usage.report else None,
    )
