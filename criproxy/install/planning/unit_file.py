"""Pure: what a service's unit file and its drop-ins say about its command line and environment."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of the section ``[Service]`` that decide how a program is called."""

    exec_start: str = ""
    """As the unit has it, on one line."""
    environment: Mapping[str, str] = field(default_factory=dict)
    environment_files: tuple[str, ...] = ()
    """Paths, in the order in which systemd reads them."""

    def variables(self, files: Mapping[str, str]) -> dict[str, str]:
        """Return the service's environment; *files* has the texts of the environment files that exist."""
        found = dict(self.environment)
        for path in self.environment_files:
            found |= environment_of(files.get(path, ""))
        return found

    def words(self, files: Mapping[str, str]) -> list[str]:
        """Return the command line with variables replaced, as systemd splits it into words."""
        variables = self.variables(files)
        found = list[str]()
        for word in _split(self.exec_start):
            whole = _VARIABLE.fullmatch(word)
            if whole and whole[2]:
                found += _split(variables.get(whole[2], ""))
            else:
                found.append(_VARIABLE.sub(lambda match: variables.get(match[1] or match[2], ""), word))
        return found


def service_of(unit: str, texts: Iterable[str]) -> Service:
    """Return the service *unit*; *texts*: its unit file and its drop-ins, in the order in which systemd reads them."""
    exec_start = ""
    environment = dict[str, str]()
    files = list[str]()
    name = unit.removesuffix(".service")
    for key, text in _settings(texts):
        value = text.replace("%N", name).replace("%p", name)
        match key:
            case "ExecStart":
                exec_start = value
            case "Environment":
                environment = environment | _pairs(value) if value else {}
            case "EnvironmentFile":
                files = [*files, value.removeprefix("-")] if value else []
    return Service(exec_start, environment, tuple(files))


def environment_of(text: str) -> dict[str, str]:
    """Return the variables of an environment file."""
    found = dict[str, str]()
    for line in _logical(text):
        name, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith(("#", ";")):
            found[name.strip()] = unquoted(value.strip())
    return found


def unquoted(value: str) -> str:
    """Return *value* without the quotes around it."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def flag(words: Iterable[str], name: str) -> str | None:
    """Return the value of the flag ``--name``, the last one if it is repeated; None without it."""
    found = flags(words, name)
    return found[-1] if found else None


def flags(words: Iterable[str], name: str) -> list[str]:
    """Return the values of all flags ``--name``."""
    return [*_values([*words], f"--{name}")]


def _values(words: list[str], option: str) -> Iterator[str]:
    for number, word in enumerate(words):
        if word.startswith(f"{option}="):
            yield word.partition("=")[2]
        elif word == option and number + 1 < len(words):
            yield words[number + 1]


def _settings(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        section = ""
        for line in _unit_lines(text):
            if line.startswith("["):
                section = line
            elif section == "[Service]" and "=" in line:
                key, _, value = line.partition("=")
                yield key.strip(), value.strip()


def _unit_lines(text: str) -> Iterator[str]:
    """Yield the lines of a unit file without comments, which may also be between lines that a backslash joins.

    An empty line ends what a backslash continues.
    """
    begun = ""
    for line in text.splitlines():
        if line.lstrip().startswith(("#", ";")):
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun = f"{begun} {(line[:-1] if is_continued else line).strip()}".strip()
        if not is_continued:
            yield begun
            begun = ""
    yield begun


def _logical(text: str) -> list[str]:
    """Return the lines of the environment file *text*, those that end with a backslash joined with the next one."""
    return re.sub(r"[ \t]*\\\n[ \t]*", " ", text).splitlines()


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an unbalanced quote, which systemd refuses
        return text.split()


def _pairs(value: str) -> dict[str, str]:
    return {name: text for name, equals, text in (word.partition("=") for word in _split(value)) if equals}
