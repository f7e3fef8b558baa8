"""Kubernetes' HorizontalPodAutoscaler, by its documented formula, on prometheus-adapter's rules and a Prometheus.

For tests: objects come from an API server, values from Debian's Prometheus, by the queries that the adapter would make.
Time plays no part: the windows of `behavior` are left out.
"""

from math import ceil
from typing import Any

from criproxy.agent.kubernetes.client import PODS, ApiClient, Resource
from criproxy.agent.kubernetes.request import Object
from tests.deploy.prometheus import Prometheus
from tests.deploy.test_manifests import rules

HPAS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", namespaced=True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
TOLERANCE = 0.1


class Autoscaler:
    """Scales one Deployment.

    Args:
        api: has the autoscaler, the Deployment and its pods.
        server: has the metrics.
        name: of both objects.
        namespace: of all.
    """

    def __init__(self, api: ApiClient, server: Prometheus, name: str, namespace: str = "default") -> None:
        self.api, self.server, self.name, self.namespace = api, server, name, namespace

    async def scale(self) -> int:
        """Decide once, and write the number of replicas; returns it."""
        hpa, deployment = [await self._get(resource) for resource in (HPAS, DEPLOYMENTS)]
        pods, _ = await self.api.list(PODS, self.namespace, label_selector=f"app={self.name}")
        now, spec = int(deployment["spec"]["replicas"]), hpa["spec"]
        names = sorted(each["metadata"]["name"] for each in pods)
        asked = [await self._wanted(metric, names, now) for metric in spec["metrics"]]
        wanted = max(each for each in asked if each is not None)
        if None in asked:
            wanted = max(wanted, now)  # a metric that is missing keeps the number from decreasing
        wanted = min(max(wanted, int(spec["minReplicas"])), int(spec["maxReplicas"]))
        await self.api.merge_patch(DEPLOYMENTS, self.name, {"spec": {"replicas": wanted}}, self.namespace)
        return wanted

    async def _get(self, resource: Resource) -> Object:
        found = await self.api.get(resource, self.name, self.namespace)
        assert found is not None
        return found

    async def _wanted(self, metric: Object, pods: list[str], now: int) -> int | None:
        """Return how many replicas one metric asks for; None if it has no value."""
        kind = metric["type"]
        if kind == "Resource":
            return None  # of metrics-server, which does not run here
        own = metric[kind.lower()]
        name, target = own["metric"]["name"], own["target"]
        assert target["type"] == ("AverageValue" if kind == "Pods" else "Value")
        if kind == "External":
            ((_, value),) = await self._adapted(kind, name, "", "")
            return _by_ratio(value / float(target["value"]), now, now)
        matchers = f'namespace="{self.namespace}",pod=~"{"|".join(pods)}"'
        values = {labels["pod"]: value for labels, value in await self._adapted(kind, name, matchers, "pod")}
        return _by_pods(values, pods, float(target["averageValue"]), now) if values else None

    async def _adapted(self, kind: str, name: str, matchers: str, group: str) -> list[tuple[dict[str, str], float]]:
        (rule,) = (each for each in rules()[kind] if each["name"]["as"] == name)
        query = rule["metricsQuery"].replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", group)
        return await self.server.query(query)


def _by_ratio(ratio: float, count: int, now: int) -> int:
    return now if abs(ratio - 1) <= TOLERANCE else ceil(ratio * count)


def _by_pods(values: dict[str, Any], pods: list[str], target: float, now: int) -> int:
    """Pods without a value count as unused when scaling up, and as at the target when scaling down."""
    ratio = sum(values.values()) / len(values) / target
    missing = [each for each in pods if each not in values]
    if not missing:
        return _by_ratio(ratio, len(pods), now)
    filled = sum(values.values()) + len(missing) * (target if ratio < 1 else 0)
    corrected = filled / len(pods) / target
    if (ratio < 1) != (corrected < 1):
        return now
    return _by_ratio(corrected, len(pods), now)
