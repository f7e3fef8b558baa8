"""Finding, reading and checking the policy file of this node."""

from dataclasses import dataclass
from pathlib import Path

from criproxy.config.choice import Choice, choose
from criproxy.config.document import parse
from criproxy.config.files import read_text
from criproxy.config.mistake import Mistake, told
from criproxy.config.settings import Settings, to_settings
from criproxy.errors import ConfigError
from criproxy.model.topology import Topology
from criproxy.policy.usable import HostReader


@dataclass(frozen=True, slots=True)
class Report:
    """What came of reading one policy file."""

    choice: Choice
    settings: Settings | None
    """None if there are mistakes."""
    mistakes: list[Mistake]
    """In the order of the file."""


def load(
    path: Path,
    hostname: str,
    *,
    group: str | None = None,
    topology: Topology | None = None,
    host: HostReader | None = None,
) -> Settings:
    """Read the policy file *path*, or from the directory *path* the file that is this node's.

    Args:
        path: a file or a directory.
        hostname: this node's; with *group* it chooses among the files of a directory (see `choice.choose`).
        group: the node's; None takes it from ``/etc/criproxy/group``, where there is one.
        topology: the machine that has to have what the file asks; None checks the file alone.
        host: tells the CPUs of cgroups and devices that the file names; None leaves it open which these are.

    Raises:
        ConfigError: all mistakes, a line each: ``file:line:column: what is wrong``.
    """
    report = examine(choose(path, hostname, group), topology, host)
    if report.settings is None:
        raise ConfigError("\n".join(mistake.located(report.choice.file) for mistake in report.mistakes))
    return report.settings


def examine(choice: Choice, topology: Topology | None = None, host: HostReader | None = None) -> Report:
    """Read one file; whatever is in it, what is wrong comes back as mistakes."""
    text, mistakes = read_text(choice.file)
    settings = None
    if text is not None:
        settings, of_content = to_settings(parse(text), choice.file, topology, host)
        mistakes += of_content
    return Report(choice, None if mistakes else settings, told(mistakes))
