"""Answers one question to Helm, from standard input, in JSON; the argument is the folder that has the library."""

import importlib
import json
import sys
from typing import Any


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
        return chart.render(question["values"], name=question["name"], namespace="kube-system")


main()
