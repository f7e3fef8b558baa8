"""Collects the parts of a bundle, and hides in them what must not leave the node."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from criproxy.cli.bundle.parts import Part, explaining, first_parts
from criproxy.cli.bundle.patterns import HIDDEN
from criproxy.cli.bundle.processes import Outcome, Processes
from criproxy.cli.bundle.pseudonyms import Names
from criproxy.cli.bundle.redaction import redact_json, redact_text
from criproxy.cli.bundle.registries import Registries
from criproxy.cli.bundle.settings import Settings

ERRORS = "errors.txt"
POLICY_FOLDER = "policy"
_MAX_ERROR_CHARS = 2_000
_NODE_FLAGS = re.compile(
    r"(--(?:node-[\w-]+|hostname-override|provider-id|cluster-[\w-]+|server|advertise-address)(?:=|\s+))\S+"
)
"""Flags of the kubelet and of k3s that name the node or the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hiding:
    """What to hide beside secrets."""

    names: bool = False
    registries: bool = False

    def __str__(self) -> str:
        names = ", names (pseudonyms are not as long, so the columns of tables are not aligned)"
        more = [names if self.names else "", ", registries of images" if self.registries else ""]
        return "values of environment variables and annotations, credentials" + "".join(more)


@dataclass(slots=True)
class Bundle:
    """What was collected."""

    files: dict[str, Any] = field(default_factory=dict)
    """By name: JSON values (`*.json`), lists of them (`*.jsonl`) or text."""
    titles: dict[str, str] = field(default_factory=dict)
    """What is in each file."""
    errors: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add the files of a part, or the reason why there are none."""
        part = outcome.part
        if outcome.status is None:
            self.errors.append(f"{part.title}: it was not ready within {part.limit_s:g} s")
        if part.file:
            self._add_output(part, outcome)
        else:
            for line in outcome.output.splitlines():
                self._add_piece(part, line)
        if outcome.errors.strip():
            self.errors.append(f"{part.title}: {outcome.errors.strip()[:_MAX_ERROR_CHARS]}")

    def _add_output(self, part: Part, outcome: Outcome) -> None:
        if not outcome.output.strip():
            if outcome.status == 0:
                self._put(part, part.file, "")
            return
        try:
            self._put(part, part.file, _read(part.file, outcome.output))
        except (ValueError, RecursionError):  # cut where it was killed, or made to hurt
            self._put(part, f"{part.file}.txt", outcome.output)

    def _add_piece(self, part: Part, line: str) -> None:
        try:
            name, content = json.loads(line)
        except ValueError:  # cut where it was killed
            return
        if not name:
            self.errors.append(f"{part.title}: {content}")
        elif isinstance(content, str) and isinstance(self.files.get(name), str):
            self.files[name] += content
        else:
            self._put(part, name, content)

    def _put(self, part: Part, name: str, content: Any) -> None:  # noqa: ANN401 - JSON
        self.files[name] = content
        self.titles[name] = part.title


def collect(settings: Settings) -> Bundle:
    """Run all parts, and return what they have found, secrets included."""
    with _scratch() as folder:
        bundle, processes = Bundle(), Processes({"TMPDIR": folder} if folder else {})
        for outcome in processes.run(first_parts(settings)):
            bundle.add(outcome)
        for outcome in processes.run([*explaining(settings, bundle.files.get("status.json"))]):
            bundle.add(outcome)
    return bundle


@contextmanager
def _scratch() -> Iterator[str]:
    """Make a directory for temporary files, which processes that are killed leave; empty if there is no room for it."""
    try:
        folder = mkdtemp(prefix="criproxy-bundle-")
    except OSError:
        yield ""
        return
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def redacted(bundle: Bundle, hiding: Hiding, hostname: str = "") -> dict[str, str]:
    """Return the texts of all files without secrets; a file that cannot be redacted is left out, with an error."""
    files = {name: _attempt(bundle, name, _without_secrets, name, content) for name, content in bundle.files.items()}
    errors = redact_text("".join(f"{error}\n" for error in bundle.errors))
    hidden = _Hidden.of({**files, ERRORS: errors}, hiding, hostname or os.uname().nodename)
    texts = {name: _attempt(bundle, name, hidden.written, name, content) for name, content in files.items()}
    if bundle.errors:
        texts[ERRORS] = hidden.written(ERRORS, redact_text("".join(f"{error}\n" for error in bundle.errors)))
        bundle.titles[ERRORS] = "parts that are missing or incomplete, and why"
        bundle.errors = texts[ERRORS].splitlines()
    bundle.titles = {hidden.file_name(name): title for name, title in bundle.titles.items()}
    return {hidden.file_name(name): text for name, text in texts.items() if text is not None}


def _attempt(bundle: Bundle, name: str, change: Callable[[str, Any], Any], *arguments: Any) -> Any:  # noqa: ANN401 - JSON
    """Return what *change* makes of a file; None, with an error, if it fails or there is none."""
    if arguments[-1] is None:
        return None
    try:
        return change(*arguments)
    except Exception as error:  # noqa: BLE001 (whatever it is, the file must not be in the bundle as it is)
        bundle.errors.append(f"{name}: left out, as it cannot be redacted: {type(error).__name__}")
        return None


def _without_secrets(name: str, content: Any) -> Any:  # noqa: ANN401 - JSON
    return (
        redact_text(content, is_environment=name.endswith(".env")) if isinstance(content, str) else redact_json(content)
    )


@dataclass(frozen=True, slots=True)
class _Hidden:
    """Names and registries that are hidden in the files of one bundle."""

    names: Names | None
    registries: Registries | None

    @classmethod
    def of(cls, files: Mapping[str, Any], hiding: Hiding, hostname: str) -> "_Hidden":
        """Learn from all files what is to be hidden in each of them."""
        names = Names(hostname) if hiding.names else None
        registries = Registries() if hiding.registries else None
        for name, content in files.items():
            data = _yaml(content) if name.endswith((".yaml", ".yml")) and content else content
            if names:
                names.learn_json(data)
                names.learn_policy(data)
            if registries:
                registries.learn_json(data)
        for content in files.values():
            if names:
                names.learn_titles(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
        return cls(names, registries)

    def file_name(self, name: str) -> str:
        """Return the name of a file; a policy file may have that of the node."""
        folder, _, own = name.rpartition("/")
        return f"{folder}/{self.names.replaced(own)}" if self.names and folder == POLICY_FOLDER else name

    def written(self, name: str, content: Any) -> str:  # noqa: ANN401 - JSON
        """Return the text of the file *name* without what is hidden."""
        if isinstance(content, str):
            text = self.registries.replaced(content) if self.registries else content
            return self.names.replaced(_NODE_FLAGS.sub(rf"\1{HIDDEN}", text)) if self.names else text
        value = self.registries.replaced_json(content) if self.registries else content
        return _written(name, self.names.replaced_json(value) if self.names else value)


def _yaml(text: str) -> Any:  # noqa: ANN401 - YAML
    """Return what a policy file says; its text if it cannot be read."""
    from criproxy.config.reading.document import parse

    document = parse(text)
    return text if document.mistakes else document.data


def _read(name: str, text: str) -> Any:  # noqa: ANN401 - JSON
    if name.endswith(".json"):
        return json.loads(text)
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    return text


def _written(name: str, content: Any) -> str:  # noqa: ANN401 - JSON
    if name.endswith(".jsonl") and isinstance(content, list):
        return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in content)
    return f"{json.dumps(content, ensure_ascii=False, indent=1)}\n"
