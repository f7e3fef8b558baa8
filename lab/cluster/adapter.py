"""Kubernetes' API for metrics of pods: Prometheus, asked by the rules of `deploy/scaling`, as prometheus-adapter does.

Debian has no prometheus-adapter. This one answers only what a HorizontalPodAutoscaler asks.
"""

import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from lab.cluster.manifests import Object
from lab.cluster.space import ADDRESS
from lab.provenance import ROOT
from tests.deploy.prometheus import Prometheus

GROUP, VERSION = "custom.metrics.k8s.io", "v1beta1"
PORT = 6443
_NAMESPACE, _SERVICE = "kube-system", "lab-metrics"
_RULES = ROOT / "deploy/scaling/prometheus-adapter.yaml"


def objects() -> list[Object]:
    """What leads the API server to the adapter: a Service without pods, its address, and the API's name."""
    metadata = {"name": _SERVICE, "namespace": _NAMESPACE}
    spec = {"group": GROUP, "version": VERSION, "insecureSkipTLSVerify": True, "groupPriorityMinimum": 100}
    spec |= {"versionPriority": 100, "service": {"name": _SERVICE, "namespace": _NAMESPACE, "port": 443}}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 443}]}},
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": metadata,
            "subsets": [{"addresses": [{"ip": ADDRESS}], "ports": [{"port": PORT}]}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": spec,
        },
    ]


def query(rules: Object, metric: str, namespace: str, pods: list[str]) -> str:
    """What a Prometheus is asked for *metric* of these pods; StopIteration if no rule has it."""
    rule = next(each for each in rules["rules"] if each["name"]["as"] == metric)
    matchers = f'namespace="{namespace}",pod=~"{"|".join(pods)}"'
    return str(rule["metricsQuery"]).replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", "pod")


def answer(metric: str, namespace: str, values: list[tuple[dict[str, str], float]]) -> Object:
    """The values of pods as the autoscaler reads them."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    items = [
        {
            "describedObject": {"kind": "Pod", "namespace": namespace, "name": labels["pod"], "apiVersion": "/v1"},
            "metricName": metric,
            "metric": {"name": metric, "selector": None},
            "timestamp": now,
            "value": f"{round(1000 * value)}m",
        }
        for labels, value in values
    ]
    return {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}


@asynccontextmanager
async def serving(folder: Path, server: Prometheus, pods: list[str]) -> AsyncIterator[None]:
    """Answer for the pods that *pods* has at the time."""
    rules = yaml.safe_load(_RULES.read_text())

    async def discovery(_: web.Request) -> web.Response:
        names = [f"pods/{each['name']['as']}" for each in rules["rules"]]
        about = {"singularName": "", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]}
        version = f"{GROUP}/{VERSION}"
        resources = [{"name": name, **about} for name in names]
        return web.json_response(
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
        )

    async def values(request: web.Request) -> web.Response:
        namespace, metric = request.match_info["namespace"], request.match_info["metric"]
        found: list[tuple[dict[str, str], float]] = await server.query(query(rules, metric, namespace, pods))
        return web.json_response(answer(metric, namespace, found))

    app, top = web.Application(), f"/apis/{GROUP}/{VERSION}"
    app.router.add_get(top, discovery)
    app.router.add_get(f"{top}/namespaces/{{namespace}}/pods/*/{{metric}}", values)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, ADDRESS, PORT, ssl_context=_tls(folder)).start()
    try:
        yield
    finally:
        await runner.cleanup()


def _tls(folder: Path) -> ssl.SSLContext:
    """A certificate that nobody has signed."""
    certificate, key = folder / "adapter.crt", folder / "adapter.key"
    command: list[Any] = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=lab", "-out", certificate, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
