"""Finding and reading the policy file of this node."""

from pathlib import Path

from criproxy.config.document import MAX_BYTES, parse
from criproxy.config.settings import Settings, to_settings
from criproxy.errors import ConfigError

DEFAULT_NAME = "default.yaml"


def load(path: Path, hostname: str) -> Settings:
    """Read the policy file *path*, or from the directory *path* the file that is this node's.

    Raises:
        ConfigError: all mistakes, a line each: ``file:line:column: what is wrong``.
    """
    source = choose(path, hostname)
    settings, mistakes = to_settings(parse(_read(source)), source)
    if settings is None:
        lines = (f"{source}:{m.line}:{m.column}: {m.text}" for m in sorted(mistakes))
        raise ConfigError("\n".join(lines))
    return settings


def choose(path: Path, hostname: str) -> Path:
    """*path* itself, or if it is a directory, ``HOSTNAME.yaml`` in it, else ``default.yaml``.

    Raises:
        ConfigError: the directory has neither.
    """
    if not path.is_dir():
        return path
    if not hostname or "/" in hostname or hostname.startswith("."):
        raise ConfigError(f"{path}: the host name {hostname!r} cannot be the name of a policy file")
    names = [f"{hostname}.yaml", DEFAULT_NAME]
    for name in names:
        if (path / name).exists():
            return path / name
    raise ConfigError(f"{path}: has no policy file for this node: neither {' nor '.join(names)}")


def _read(source: Path) -> str:
    try:
        with source.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{source}: there is no such file; --config names a policy file or a directory") from error
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{source}: larger than {MAX_BYTES >> 20} MiB, which no policy file is")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise ConfigError(f"{source}:{line}:{column}: is not UTF-8 text") from error
