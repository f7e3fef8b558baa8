"""Pure: the texts of units, environment files and YAML files: what they say, and changes of one setting in them."""

import itertools
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import yaml

ENDPOINT_KEY = "containerRuntimeEndpoint"
FLAG = "container-runtime-endpoint"
NRI_PLUGIN = "io.containerd.nri.v1.nri"
_NRI_HEADER = re.compile(rf"""\s*\[plugins\.(["']){re.escape(NRI_PLUGIN)}\1\]""")
REQUEST_TIMEOUT = "10s"
"""How long a runtime waits for a plugin at least; by default, it is 2 s."""
_TIME = r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
_TIMES = re.compile(rf"\+?(?:{_TIME})+")
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_ASSIGNMENT = re.compile(
    r"""[ \t]*(?: [#;][^\n]* | (?P<name>[^=\n]*?)[ \t]*=[ \t\r]*
        (?P<value> (?: (?: '[^']*' | "(?:[^"\\]|\\.)*" )[ \t\r]*)* (?P<rest>(?:\\.|[^\\\n])*) ) | [^\n]* )(?:\n|\Z)""",
    re.DOTALL | re.VERBOSE,
)
"""A line of an environment file, or several if its value is quoted or has a backslash at an end of line."""
_QUOTED = re.compile(r"""[ \t\r]*(?:'([^']*)'|"((?:[^"\\]|\\.)*)")""", re.DOTALL)


class CannotEdit(Exception):
    """A text in which the setting has to be changed by hand; says why."""


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a unit's section ``[Service]`` that decide how a program is called."""

    exec_start: str = ""
    """As the unit has it, on one line."""
    environment: Mapping[str, str] = field(default_factory=dict)
    environment_files: tuple[str, ...] = ()
    """Paths, in the order in which systemd reads them."""


def service_of(unit: str, texts: Iterable[str]) -> Service:
    """Return the service *unit*; *texts*: its unit file and its drop-ins, in the order in which systemd reads them."""
    command, environment, files, name = "", dict[str, str](), list[str](), unit.removesuffix(".service")
    for key, text in _service_settings(texts):
        value = text.replace("%N", name).replace("%p", name)
        match key:
            case "ExecStart":
                command = value
            case "Environment":
                pairs = (word.partition("=") for word in split(value))
                environment = {**environment, **{pair[0]: pair[2] for pair in pairs if pair[1]}} if value else {}
            case "EnvironmentFile":
                files = [*files, value.removeprefix("-")] if value else []
    return Service(command, environment, tuple(files))


def _service_settings(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
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


def command_words(command: str, variables: Mapping[str, str]) -> list[str]:
    """Return a unit's command line with variables replaced, as systemd splits it into words."""
    words = list[str]()
    for word in split(command):
        if (whole := _VARIABLE.fullmatch(word)) and whole[2]:
            words += split(variables.get(whole[2], ""))
        else:
            words.append(_VARIABLE.sub(lambda match: variables.get(match[1] or match[2], ""), word))
    return words


def split(text: str) -> list[str]:
    """Return the words of a command line."""
    try:
        return shlex.split(text)
    except ValueError:  # an unbalanced quote, which systemd refuses
        return text.split()


def environment_of(text: str) -> dict[str, str]:
    """Return the variables of an environment file, by the rules of systemd.exec(5).

    An unquoted value reaches to the end of the line, with the white space and the quotes in it; a quoted one may have
    several lines.
    """
    return {match["name"]: _value(match["value"]) for match in _assignments(text)}


def _assignments(text: str) -> Iterator[re.Match[str]]:
    return (match for match in _ASSIGNMENT.finditer(text) if match["name"])


def _value(written: str) -> str:
    value, place = "", 0
    while quoted := _QUOTED.match(written, place):
        single, double = quoted.groups()
        value += single if double is None else re.sub(r'\\(["\\`$\n])', lambda match: match[1].strip("\n"), double)
        place = quoted.end()
    return value + re.sub(r"(?s)\\(.)", lambda match: match[1].strip("\n"), written[place:]).strip(" \t\r")


def unclosed_quote(text: str) -> int | None:
    """Return the number of the line of an environment file with a quote that nothing closes; None if there is none."""
    places = (match.start("value") for match in _assignments(text) if match["rest"][:1] in ("'", '"'))
    return next((text.count("\n", 0, place) + 1 for place in places), None)


def flag(words: Iterable[str], name: str) -> str | None:
    """Return the value of the flag ``--name``, the last one if it is repeated; None without it."""
    return next(reversed(flags(words, name)), None)


def flags(words: Iterable[str], name: str) -> list[str]:
    """Return the values of all flags ``--name``."""
    listed, option = [*words], f"--{name}"
    return [
        word.partition("=")[2] if "=" in word else listed[number + 1]
        for number, word in enumerate(listed)
        if word.startswith(f"{option}=") or (word == option and number + 1 < len(listed))
    ]


def with_flag(text: str, variable: str, name: str, value: str | None) -> str:
    """Return an environment file in which *variable* has the flag ``--name=value``, or with None does not have it.

    Raises:
        CannotEdit: the variable is written over several lines, or its quotes are not around the whole value.
    """
    if line := unclosed_quote(text):
        raise CannotEdit(f"nothing closes the quote in line {line}")
    matches = [match for match in _assignments(text) if match["name"] == variable]
    if not matches:
        return text if value is None else f'{_ended(text)}{variable}="--{name}={value}"\n'
    written = matches[-1]["value"].strip()
    if "\n" in matches[-1]["value"]:
        raise CannotEdit(f"{variable} is written over several lines")
    is_quoted = written[:1] in ("'", '"')
    if is_quoted and not _QUOTED.fullmatch(written):
        raise CannotEdit(f"{variable} has text after its closing quote")
    new = command_with_flag(written[1:-1] if is_quoted else written, name, value)
    needs_quotes = (" " in new or not written) and not {'"', "\\"} & {*written}
    quote = written[0] if is_quoted else '"' * needs_quotes
    start, end = matches[-1].start("value"), matches[-1].end()
    return f"{text[:start]}{quote}{new}{quote}\n{text[end:]}"


def command_with_flag(command: str, name: str, value: str | None) -> str:
    """Return a command line that ends with ``--name=value``, or with None has no such flag."""
    rest = re.sub(rf"(?:^|(?<=\s))--{re.escape(name)}(?:=|\s+)(?:\"[^\"]*\"|'[^']*'|\S+)\s*", "", command).rstrip()
    return rest if value is None else f"{rest} --{name}={value}".lstrip()


def with_key(text: str, key: str, value: str | None) -> str:
    """Return a YAML mapping in which the top-level *key* has *value*, or with None does not exist.

    Raises:
        CannotEdit: this text is no such mapping, or is written in another way.
    """
    wanted = {name: each for name, each in mapping(text).items() if name != key}
    new = ""
    if value is not None:
        new, wanted[key] = f"{key}: {value}\n", value
    line = re.compile(rf"^{re.escape(key)}[ \t]*:.*\n?", re.MULTILINE)
    after = line.sub(lambda _: new, text, count=1) if line.search(text) else f"{_ended(text)}{new}"
    if mapping(after) != wanted:
        raise CannotEdit(f"{key} cannot be changed in the way in which the file is written")
    return after


def with_nri(text: str) -> str:
    """Return a configuration of containerd in which NRI is on, and waits 10 s for a plugin, or as long as users say.

    Raises:
        CannotEdit: it has to be done by hand.
    """
    before = toml(text or "version = 2\n")
    if before.get("version", 1) < 2:
        remedy = "begin it with 'version = 2'" + ", and change it to that version" * bool(before)
        raise CannotEdit(f"it is of version 1, which has no NRI: {remedy}")
    table = before.get("plugins", {}).get(NRI_PLUGIN, {})
    if not (wanted := nri_wanted(table)):
        return text
    lines = _ended(text or "version = 2\n").splitlines(keepends=True)
    if not any(map(_NRI_HEADER.match, lines)):
        lines += ["\n", f'[plugins."{NRI_PLUGIN}"]\n']
    start = next(number for number, line in enumerate(lines, 1) if _NRI_HEADER.match(line))
    body = [*itertools.takewhile(lambda line: not line.lstrip().startswith("["), lines[start:])]
    end = start + len(body)
    for key, value in wanted.items():
        body = [line for line in body if line.partition("=")[0].strip() != key]
        body.insert(0, f"  {key} = {json.dumps(value)}\n")
    after = "".join((*lines[:start], *body, *lines[end:]))
    plugins = {**before.get("plugins", {}), NRI_PLUGIN: {**table, **wanted}}
    with suppress(CannotEdit):  # such as a table that is on one line, and has come a second time
        if toml(after) == {**before, "plugins": plugins}:
            return after
    raise CannotEdit("NRI cannot be switched on in the way in which the file is written")


def nri_wanted(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the settings of NRI lack so that it is on, and waits for a plugin for longer than by default."""
    wanted: dict[str, Any] = {} if table.get("disable") is False else {"disable": False}
    given = table.get("plugin_request_timeout")
    if (timeout := request_timeout(given)) != given:
        wanted["plugin_request_timeout"] = timeout
    return wanted


def request_timeout(given: Any) -> Any:  # noqa: ANN401 - TOML
    """Return how long a runtime is to wait for a plugin: as users have *given* it, but `REQUEST_TIMEOUT` at least."""
    return given if _go_seconds(given) >= _go_seconds(REQUEST_TIMEOUT) else REQUEST_TIMEOUT


def _go_seconds(value: Any) -> float:  # noqa: ANN401 - TOML
    """Return a duration as Go reads it, such as ``1m30s`` or a number of nanoseconds; 0 if it is none."""
    if isinstance(value, int):
        return value * _UNIT_S["ns"]
    if not isinstance(value, str) or not _TIMES.fullmatch(value):
        return 0.0
    return sum(float(number) * _UNIT_S[unit] for number, unit in re.findall(_TIME, value))


def toml(text: str) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        CannotEdit: it is something else.
    """
    import tomllib  # 0.6 MB, of which the daemon, which reads the kubelet's YAML here, needs nothing

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CannotEdit(f"it is not valid TOML: {error}") from error


def mapping(text: str) -> dict[str, Any]:
    """Return the mapping in the only document of *text*, which is YAML or JSON; documents without content may follow.

    Raises:
        CannotEdit: it is something else.
    """
    try:
        documents = [*yaml.safe_load_all(text)]
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that does not exist
        try:
            documents = [json.loads(text)]  # our YAML library refuses JSON that is indented with tabs
        except (ValueError, RecursionError):
            raise CannotEdit(f"it is not valid YAML: {' '.join(str(error).split())}") from error
    if any(document is not None for document in documents[1:]):
        raise CannotEdit("it has several documents")
    data = documents[0] if documents else None
    if not isinstance(data, dict | None):
        raise CannotEdit("it is not a YAML mapping")
    return data or {}


def _ended(text: str) -> str:
    """Return *text* with an end of its last line."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def with_former(setting: str, before: str, now: str) -> str:
    """Return *now* with our setting as the text had it *before*, and all else as it is.

    Args:
        setting: ``VARIABLE --flag`` of an environment file, or a key of a YAML file.
        before: the text before our change; empty if the file did not exist.
        now: the text with our change and others.

    Raises:
        CannotEdit: it has to be done by hand.
    """
    variable, _, name = setting.partition(" --")
    if name:
        return with_flag(now, variable, name, flag(environment_of(before).get(variable, "").split(), name))
    return with_key(now, setting, mapping(before).get(setting))
