"""Options of `criproxy agent` that cannot be right are refused at the start, with what would be."""

import pytest
from click.testing import CliRunner

from criproxy.cli import main

WRONG = [
    pytest.param(["--namespace", "Kube System"], "'Kube System' cannot be the name of a namespace", id="namespace"),
    pytest.param(["--namespace", "n" * 64], "at most 63 lower-case letters", id="long namespace"),
    pytest.param(["--node-name", "worker_1"], "cannot be the name of a Node", id="node name"),
    pytest.param(["--http-token-file", "/t"], "--http-token-file has no effect without --http", id="token"),
    pytest.param(
        ["--default-device-configuration", "a"],
        "--default-device-configuration has no effect without --device-configurations",
        id="default configuration",
    ),
]


@pytest.mark.parametrize(("options", "expected"), WRONG)
def test_a_wrong_option_is_refused(options: list[str], expected: str) -> None:
    """As a usage error, before anything is contacted."""
    result = CliRunner().invoke(main, ["agent", *options])
    assert (result.exit_code, expected in result.output) == (2, True), result.output
