"""Policy files as tests need them: written with the mode that the loader wants, whatever the umask."""

from pathlib import Path

from criproxy.config import load
from criproxy.config.files import Choice
from criproxy.config.load import Report, examine
from criproxy.devices.options.options import DeviceOptions
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.model.machine.topology import Topology

NPU = '{name: ali-npu, resources: [aliyun.com/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}'
CLASSES = f"nvidia, amd, {NPU}"


def write(file: Path, text: str | bytes, mode: int = 0o644) -> Path:
    """Make *file*, and its folder, and return it."""
    file.parent.mkdir(mode=0o755, exist_ok=True)
    file.parent.chmod(0o755)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    file.chmod(mode)
    return file


def told(folder: Path, text: str | bytes, topology: Topology | None = None) -> list[str]:
    """What is said of a file with this text: ``line:column: sentence`` each."""
    return [mistake.located(Path("p")).removeprefix("p:") for mistake in report(folder, text, topology).mistakes]


def report(folder: Path, text: str | bytes, topology: Topology | None = None) -> Report:
    """What comes of a file with this text."""
    return examine(Choice(write(folder / "p.yaml", text), "it was named"), topology)


def devices_of(folder: Path, section: str) -> DeviceOptions | None:
    """The section about devices of a policy file, whose other lines these are."""
    return load(write(folder / "p.yaml", f"policy: none\n{section}"), "any").common.devices


def plugin_section(plugin: str, classes: str = CLASSES) -> str:
    """A section about devices, whose ``plugin`` says this."""
    return f"devices: {{classes: [{classes}], plugin: {{{plugin}}}}}\n"


def plan_of(folder: Path, plugin: str, classes: str = CLASSES) -> PluginPlan:
    """What that section means for the device plugin."""
    devices = devices_of(folder, plugin_section(plugin, classes))
    assert devices is not None
    plan = devices.plan()
    assert plan is not None
    return plan


def said_of(folder: Path, plugin: str, classes: str = CLASSES) -> list[str]:
    """What is said of that section, without its place in the file."""
    return [each.partition(": ")[2] for each in told(folder, f"policy: none\n{plugin_section(plugin, classes)}")]
