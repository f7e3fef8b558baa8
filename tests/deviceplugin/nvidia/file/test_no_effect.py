"""What of a configuration criproxy does nothing about, or otherwise."""

import pytest

from criproxy.deviceplugin.nvidia.file.command_line import set_values
from criproxy.deviceplugin.nvidia.file.load import load
from criproxy.deviceplugin.nvidia.file.no_effect import without_effect
from criproxy.deviceplugin.nvidia.file.syntax import read_file

MPS = "flags: {mpsRoot: /m}\nsharing: {mps: {%sresources: [{name: nvidia.com/gpu, replicas: %d}]}}"


def notes(text: str = "version: v1", *args: str) -> list[str]:
    """What is said of a file and of arguments."""
    said = set_values(args, {}, "plugin").keys() | read_file(text).flags.keys()
    return list(without_effect(load(text, args), said))


@pytest.mark.parametrize(
    ("text", "args", "begins"),
    [
        pytest.param("version: v1", [], [], id="defaults"),
        pytest.param("flags: {failOnInitError: false}", [], [], id="goes-on-as-asked"),
        pytest.param(
            "flags: {failOnInitError: true}",
            [],
            ["flags.failOnInitError: true does not make criproxy exit"],
            id="ends-where-nvml-fails",
        ),
        pytest.param("version: v1", ["--fail-on-init-error"], ["flags.failOnInitError: true"], id="the-same-by-flag"),
        pytest.param("version: v1", ["--kubelet-socket=/k.sock"], [], id="kubelet-socket"),
        pytest.param(
            "flags: {plugin: {nvidiaCTKPath: /c, containerDriverRoot: /d}}",
            ["--cdi-feature-flags=a"],
            ["cdi-feature-flags has", "flags.plugin.nvidiaCTKPath has", "flags.plugin.containerDriverRoot has"],
            id="of-cdi-specifications",
        ),
        pytest.param(
            "flags: {plugin: {deviceListStrategy: [envvar, cdi-cri]}}",
            [],
            ["flags.plugin.deviceListStrategy: criproxy writes no CDI specification: nvidia-ctk must write one"],
            id="cdi-names",
        ),
        pytest.param(MPS % ("", 16), [], [], id="mps"),
        pytest.param(MPS % ("failRequestsGreaterThanOne: false, ", 2), [], [], id="several-replicas-of-mps"),
        pytest.param(
            MPS % ("", 17), [], ["sharing.mps: nvidia.com/gpu has 17 replicas, but GPUs below"], id="old-gpus"
        ),
        pytest.param(
            MPS % ("", 49),
            [],
            ["sharing.mps: nvidia.com/gpu has 49 replicas, but GPUs serve at most 48"],
            id="all-gpus",
        ),
    ],
)
def test_what_is_said(text: str, args: list[str], begins: list[str]) -> None:
    """A sentence for each key that was set, and none for defaults."""
    found = notes(text, *args)

    assert [note[: len(begin)] for note, begin in zip(found, begins, strict=True)] == begins
