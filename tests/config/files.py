"""Policy files as tests need them: written with the mode that the loader wants, whatever the umask."""

from pathlib import Path

from criproxy.config.files import Choice
from criproxy.config.load import Report, examine
from criproxy.model.machine.topology import Topology


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
