"""Answers one question to Helm, from standard input, in JSON; the argument is the folder that has the library."""

import fcntl
import importlib
import json
import os
import socket
import struct
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

_SET_FLAGS, _UP = 0x8914, 0x1  # of <linux/sockios.h> and <linux/if.h>


def main() -> None:
    """Load Helm, ask it, print the answer, or why there is none."""
    sys.path.insert(0, sys.argv[1])
    helm: Any = importlib.import_module("helm_python")
    question = json.load(sys.stdin)
    try:
        answer = {"result": _answer(helm, question)}
    except helm.HelmError as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


def _answer(helm: Any, question: dict[str, Any]) -> Any:  # noqa: ANN401 (a library without types)
    if question["do"] == "lint":
        return helm.lint(question["chart"], question["values"], strict=True)
    with helm.Chart.load(question["chart"]) as chart:
        if question["do"] == "validate":
            return [chart.validate_schema(values) for values in question["values"]]
        chart.validate_schema(question["values"])
        release = {"name": question["name"], "namespace": "kube-system"}
        if question["before"] is None:
            return chart.render(question["values"], **release)
        with helm.Config(kubeconfig_content=_cluster_with(question["before"])) as cluster:
            return cluster.render(chart, question["values"], **release, is_install=False, is_upgrade=True)


def _cluster_with(daemon_set: dict[str, Any]) -> str:
    """Start an API server that knows one object, and return a kubeconfig file for it."""
    if os.geteuid() == 0:  # the loopback of a new network namespace is down
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh", b"lo", _UP))
    kind = {
        "name": "daemonsets",
        "singularName": "daemonset",
        "namespaced": True,
        "kind": "DaemonSet",
        "verbs": ["get"],
    }
    name = daemon_set["metadata"]["name"]
    answers = {
        "/apis/apps/v1": {"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [kind]},
        f"/apis/apps/v1/namespaces/kube-system/daemonsets/{name}": daemon_set,
    }

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(found or missing).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Standard output and error are Helm's."""

    server = HTTPServer(("127.0.0.1", 0), Api)
    Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    return json.dumps({"clusters": [cluster], "users": users, "contexts": [context], "current-context": "c"})


main()
