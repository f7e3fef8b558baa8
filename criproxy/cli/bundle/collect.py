"""The parts of a bundle: a process for each, which is killed when its time is over, and the archive of their output."""

import io
import json
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock
from typing import Any

from criproxy import __version__
from criproxy.cli.bundle.redaction import Names, redact_json, redact_text
from criproxy.cli.bundle.worker import Settings
from criproxy.config.document import parse
from criproxy.errors import reason_of
from criproxy.install.paths import ACTIVE, UNIT_OPTIONS
from criproxy.model.text.amounts import format_bytes
from criproxy.process.tether import python, tethered

ERRORS, MANIFEST = "errors.txt", "MANIFEST"
MOST_EXPLAINED = 10
"""Containers whose history is in the bundle."""
MAX_BYTES, MAX_FILE_BYTES, MAX_LOG_BYTES = 20 << 20, 8 << 20, 6 << 20
"""Of all files before compression, of one file, and of the log."""
MAX_ERROR_CHARS = 2000
"""Of the errors of one part: the last ones."""
AT_ONCE = 6
_UNITS = (*ACTIVE, *(f"criproxy-{name}.service" for name in ("device-plugin", "agent", "controls")))
_OTHERS = ("kubelet.service", "containerd.service", "crio.service", "k3s.service", "k3s-agent.service")
_PROPERTIES = "Id,ActiveState,SubState,Result,NRestarts,ActiveEnterTimestamp,ExecMainStatus,MemoryCurrent,TasksCurrent"
_PROC = ("loadavg", "pressure/cpu", "pressure/memory", "pressure/io", "cmdline", "meminfo")
_POLICIES = "policies.txt"
"""The paths of the policy files; not in the archive."""
_CUT = "\n… the rest is left out, since the bundle would be too large\n"


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a bundle."""

    file: str
    title: str
    limit_s: float
    command: tuple[str, ...]


def parts(settings: Settings) -> list[Part]:
    """Return all parts that do not depend on the answers of others, the most important ones first."""
    daemon = ("--control-socket", settings.control_socket)
    places = (*daemon, "--state-dir", settings.state_dir, "--host-root", settings.host_root)
    json_, root = ("--format", "json"), ("--host-root", settings.host_root)
    in_node = () if settings.host_root == "/" else ("nsenter", "--target", "1", "--mount", "--")
    units = [word for unit in _UNITS for word in ("-u", unit)]
    log = ("journalctl", *units, "--since", "-1h", "-n", "20000", "-o", "short-iso", "--no-hostname", "--no-pager")
    disks = [str(settings.path(name)) for name in ("/", "/run", "/var/lib/kubelet", "/var/log")]
    proc = [str(settings.path(f"/proc/{name}")) for name in _PROC]
    return [
        _criproxy("status.json", 20, ("status", *json_), places),
        _criproxy("status.txt", 20, ("status", "--refused"), places),
        _criproxy("check.txt", 25, ("status", "--check"), places),
        _worker("versions.txt", "versions", 10, settings),
        _worker("runtime.txt", "runtime", 15, settings),
        _worker(_POLICIES, "policy_files", 20, settings),
        _worker("kubelet.txt", "kubelet", 20, settings),
        Part(
            "units.txt", "state of the units", 15, (*in_node, "systemctl", "show", "-p", _PROPERTIES, *_UNITS, *_OTHERS)
        ),
        Part("unit-files.txt", "criproxy's units", 15, (*in_node, "systemctl", "cat", *_UNITS)),
        Part("disks.txt", "space on the disks", 10, ("df", "-h", "--output", *disks, settings.state_dir)),
        Part("kernel.txt", "load, memory, kernel parameters", 10, ("head", "-v", "-c", "65536", *proc)),
        _criproxy("events.txt", 20, ("events", "--since", "24h"), places),
        _criproxy("events.jsonl", 20, ("events", "--since", "24h", *json_), places),
        _criproxy("configurations.txt", 10, ("history", "config"), ("--state-dir", settings.state_dir)),
        _criproxy("devices.json", 40, ("devices", *json_), places),
        _criproxy("devices.txt", 40, ("devices",), places),
        _criproxy("usage.txt", 15, ("usage",), daemon),
        _criproxy("topology.json", 20, ("topology", *json_), root),
        _criproxy("topology.txt", 20, ("topology",), root),
        _worker("metrics.txt", "metrics", 40, settings),
        Part("state/files.txt", "files of the state", 10, ("ls", "-lRn", settings.state_dir)),
        _worker("state/integrity.json", "integrity", 30, settings),
        *([_worker("state/content.json", "content", 30, settings)] if settings.with_state else []),
        Part("log.txt", "the last hour of criproxy's log", 40, (*in_node, *log)),
    ]


def _dependent_parts(settings: Settings, policies: str, status: Any) -> Iterator[Part]:  # noqa: ANN401 - JSON
    """Yield the parts that depend on the output of others: policy files, and the history of containers with problems.

    Args:
        settings: the paths on the node.
        policies: the paths of the policy files, one a line.
        status: the answer of `criproxy status`; None if there is none.
    """
    yield from _files(settings, policies)
    places = ("--control-socket", settings.control_socket, "--state-dir", settings.state_dir)
    for number, title in enumerate(troubled(status)[:MOST_EXPLAINED]):
        arguments = (*places, "--host-root", settings.host_root, "--", title)
        yield _criproxy(f"explain/{number}.txt", 20, ("explain",), arguments)
        yield _criproxy(f"explain/{number}.json", 20, ("explain", "--format", "json"), arguments)


def troubled(status: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Return the containers that are refused, or with whose place or update something is wrong."""
    if not isinstance(status, dict):
        return []
    refused = [str(refusal.get("container")) for refusal in status.get("refusals", [])]
    wrong = [
        "/".join(str(row.get(key)) for key in ("namespace", "pod", "container"))
        for row in status.get("containers", [])
        if row.get("error") or row.get("failures") or not row.get("in_place", True)
    ]
    return list(dict.fromkeys([*wrong, *refused]))


def _criproxy(file: str, limit_s: float, words: tuple[str, ...], places: tuple[str, ...]) -> Part:
    return Part(file, f"criproxy {' '.join(words)}", limit_s, python("criproxy", *words, *places))


def _worker(file: str, name: str, limit_s: float, settings: Settings) -> Part:
    return Part(file, name, limit_s, python("criproxy.cli.bundle.worker", name, json.dumps(asdict(settings))))


def _files(settings: Settings, policies: str) -> Iterator[Part]:
    """Yield the policy files, whose paths stand in the lines of *policies*, and the environment files of the units."""
    beginning = ("head", "-c", "1048576")
    for number, file in enumerate(dict.fromkeys(policies.splitlines())):
        name = f"policy/{f'{number + 1}-' if number else ''}{Path(file).name}"
        yield Part(name, "a policy file", 5, (*beginning, file))
    for variables in map(settings.path, UNIT_OPTIONS):
        if os.path.lexists(variables):
            yield Part(f"policy/{variables.name}.env", "options of a unit", 5, (*beginning, str(variables)))


class Processes:
    """Runs the parts of a bundle, a few at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        inherited = {k: v for k, v in {**os.environ, **environment}.items() if k not in ("COLUMNS", "LINES")}
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._popen: partial[subprocess.Popen[bytes]] = partial(
            subprocess.Popen, **pipes, env=inherited, start_new_session=True
        )
        self._running = set[subprocess.Popen[bytes]]()
        self._lock, self._is_stopped = Lock(), False

    def run(self, listed: Sequence[Part]) -> Iterator[tuple[Part, str, str]]:
        """Yield each part with its output and errors, in order; an exception of the caller ends all processes."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                yield from pool.map(self._run, listed)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                with self._lock:  # else a part that begins at this moment would run on
                    self._is_stopped = True
                    for process in self._running:
                        _kill(process)
                raise

    def _run(self, part: Part) -> tuple[Part, str, str]:
        try:
            with self._lock:
                if self._is_stopped:
                    raise InterruptedError("stopped")
                process = self._popen(tethered(part.command), cwd="/")  # ours may be on a disk that hangs
                self._running.add(process)
        except OSError as error:
            return part, "", f"{part.command[0]} cannot be run: {reason_of(error)}"
        late = ""
        try:
            output, errors = process.communicate(timeout=part.limit_s)
        except subprocess.TimeoutExpired:
            late = f"it was not ready within {part.limit_s:g} s\n"
            _kill(process)
            try:
                output, errors = process.communicate(timeout=1.0)
            except subprocess.TimeoutExpired as expired:  # the kernel does not let it go
                output, errors = expired.stdout or b"", expired.stderr or b""
        with self._lock:
            self._running.discard(process)
        return part, output[-MAX_LOG_BYTES:].decode(errors="replace"), (late + errors.decode(errors="replace")).strip()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill *process* and the programs that it runs, which are in its process group."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def collect(settings: Settings, names: Names | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of a bundle by name without secrets, and their titles; *names*: replaces names, too."""
    files, titles, errors = dict[str, Any](), dict[str, str](), list[str]()
    for part, output, problem in _outputs(settings):
        if output or not problem:  # a part that only failed has no file
            files[part.file], titles[part.file] = _read(part.file, output), part.title
        if problem:
            errors.append(f"{part.title}: {' '.join(problem.split())[-MAX_ERROR_CHARS:]}")
    if errors:
        files[ERRORS], titles[ERRORS] = "\n".join(errors), "parts that are missing or incomplete, and why"
    redacted = {name: _redacted(name, values) for name, values in files.items()}
    if names is None:
        return {name: _written(name, values) for name, values in redacted.items()}, titles
    for _ in range(2):  # a later file may have the first occurrence of a namespace
        for name, values in redacted.items():
            names.learn(parse(values).data if name.endswith((".yaml", ".yml")) else values)
    written = {_file_name(name, names): _written(name, names.replaced(values)) for name, values in redacted.items()}
    return written, {_file_name(name, names): title for name, title in titles.items()}


def _outputs(settings: Settings) -> Iterator[tuple[Part, str, str]]:
    """Yield each part with its output and errors, those that depend on the output of others last."""
    outputs, folder = dict[str, str](), ""
    try:
        with suppress(OSError):  # without room for temporary files
            folder = mkdtemp(prefix="criproxy-bundle-")  # for the files of processes that are killed
        processes = Processes({"TMPDIR": folder} if folder else {})
        for part, output, problem in processes.run(parts(settings)):
            outputs[part.file] = output
            if part.file != _POLICIES:
                yield part, output, problem
            elif problem:
                yield part, "", problem
        status = _read("status.json", outputs.get("status.json", ""))
        yield from processes.run([*_dependent_parts(settings, outputs.get(_POLICIES, ""), status)])
    finally:
        if folder:
            rmtree(folder, ignore_errors=True)


def _file_name(name: str, names: Names) -> str:
    """Return the anonymous name of a file: a policy file may be named after the node."""
    folder, _, base = name.rpartition("/")
    return f"{folder}/{names.replaced(base)}" if folder == "policy" else name


def _read(name: str, text: str) -> Any:  # noqa: ANN401 - JSON
    with suppress(ValueError, RecursionError):  # cut where it was killed, or made to hurt: it is text
        if name.endswith(".json"):
            return json.loads(text)
        if name.endswith(".jsonl"):
            return [json.loads(line) for line in text.splitlines()]
    return text


def _redacted(name: str, content: Any) -> Any:  # noqa: ANN401 - JSON
    try:
        if isinstance(content, str):
            return redact_text(content, is_environment=name.endswith(".env"))
        return redact_json(content)
    except Exception as error:  # noqa: BLE001 (whatever it is, the file must not be in the bundle as it is)
        return f"left out, as it cannot be redacted: {type(error).__name__}\n"


def _written(name: str, content: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(content, str):
        return content
    if name.endswith(".jsonl"):
        return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in content)
    return f"{json.dumps(content, ensure_ascii=False, indent=1)}\n"


def archive(folder: str, texts: Mapping[str, str], titles: Mapping[str, str], at_s: float) -> tuple[bytes, str]:
    """Return a compressed archive of *texts* below *folder*, readable for the owner only, and its list of files."""
    left, files = MAX_BYTES - (64 << 10), dict[str, bytes]()
    for name, text in texts.items():
        content = text.encode(errors="replace")
        if len(content) > (most := min(left, MAX_FILE_BYTES)):
            content = content[: max(0, most - len(_CUT.encode()))].decode(errors="ignore").encode() + _CUT.encode()
        files[name], left = content, max(0, left - len(content))
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))
    width = max(map(len, files), default=0)
    lines = [f"{name:{width}}  {format_bytes(len(files[name])):>9}  {titles.get(name, '')}" for name in sorted(files)]
    listed = "\n".join((f"criproxy {__version__}, support bundle of {at}", "", *lines, ""))
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in {MANIFEST: listed.encode(), **files}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(at_s)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue(), listed
