"""Finding, reading and checking the policy file of this node, and what its cards need if it cannot be used."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.config.document import Document, parse
from criproxy.config.files import Choice, choose, read_text
from criproxy.config.mistakes import Mistake, did_you_mean, reported
from criproxy.config.settings import Settings, read_settings
from criproxy.errors import ConfigError
from criproxy.model.machine.topology import Topology
from criproxy.placement.options.usable import HostReader
from criproxy.placement.policies.api import Policy

if TYPE_CHECKING:
    from criproxy.devices.options.options import DeviceOptions


@dataclass(frozen=True, slots=True)
class Report:
    """The result of reading one policy file."""

    choice: Choice
    settings: Settings | None
    """None if there are mistakes."""
    mistakes: list[Mistake]
    """In the order of the file."""
    policy: Policy | None = None
    """Made of the settings; None if there are mistakes."""
    text: str | None = None
    """What the file says; None where it cannot be read."""
    unfit: Settings | None = None
    """The settings where the only mistake is that this machine lacks something that they ask for."""

    @property
    def error(self) -> ConfigError:
        """All mistakes, a line each."""
        return ConfigError("\n".join(mistake.located(self.choice.file) for mistake in self.mistakes))


def load(path: Path, hostname: str, *, topology: Topology | None = None, host: HostReader | None = None) -> Settings:
    """Read the policy file *path*, or from the directory *path* the file that is this node's.

    Args:
        path: a file or a directory.
        hostname: this node's; with its group it chooses among the files of a directory (see `choose`).
        topology: the machine that must have what the file asks for; None checks the file alone.
        host: reads the CPUs of cgroups and devices that the file names; None leaves them unknown.

    Raises:
        ConfigError: all mistakes, a line each: ``file:line:column: what is wrong``.
    """
    report = examine(choose(path, hostname), topology, host)
    if report.settings is None:
        raise report.error
    return report.settings


def examine(choice: Choice, topology: Topology | None = None, host: HostReader | None = None) -> Report:
    """Read and check one file; whatever is wrong with it comes back as mistakes."""
    text, mistakes = read_text(choice.file)
    if text is None:
        return Report(choice, None, reported(mistakes))
    return judge(text, choice, topology, host, mistakes)


def judge(
    text: str,
    choice: Choice,
    topology: Topology | None = None,
    host: HostReader | None = None,
    before: Sequence[Mistake] = (),
    document: Document | None = None,
) -> Report:
    """Check a configuration: `criproxy check`, a start and a reload of the daemon all use this.

    Args:
        text: what the file says.
        choice: which file that is.
        topology: as for `load`.
        host: as for `load`.
        before: what is wrong with the file itself.
        document: the text, read already; None: it is read here.
    """
    contents = read_settings(document or parse(text), choice.file, topology, host)
    wrong, policy = [*before, *contents.wrong], None
    if contents.settings is not None and not wrong:
        try:
            policy = contents.settings.build_policy()
        except ConfigError as error:
            wrong = [Mistake(0, 0, str(error).removeprefix(f"{choice.file}: "))]
    mistakes = reported([*wrong, *contents.unfit])
    if mistakes:
        return Report(choice, None, mistakes, None, text, None if wrong else contents.settings)
    return Report(choice, contents.settings, [], policy, text)


SECTION = "devices"


def devices_alone(text: str | None) -> "DeviceOptions | None":
    """What to go by while the file is not in force.

    Args:
        text: what the file says; None where it cannot be read.

    Returns:
        The section, if it is valid by itself; None if the file can be read and has none; else the defaults: all
        classes that are built in are hidden outside exempt namespaces.
    """
    from criproxy.devices.options.options import DeviceOptions

    document = parse(text) if text is not None else None
    if document is None or document.mistakes or not isinstance(document.data, dict):
        return DeviceOptions()
    if document.data.get(SECTION) is None:  # as in a file that is in force
        misspelt = any(did_you_mean(name, [SECTION]) for name in document.data if name != SECTION)
        return DeviceOptions() if misspelt else None
    try:
        options = DeviceOptions.model_validate(document.data[SECTION])
    except ValueError:
        return DeviceOptions()
    return DeviceOptions() if any(options.contradictions()) else options
