"""What an installation would do to a node, what stands against it, and what its administrators should know."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from criproxy import __version__
from criproxy.install import kubelet_files, paths
from criproxy.install.host import Host
from criproxy.install.journal import Journal
from criproxy.install.kubelet import Kubelet, unit_text
from criproxy.install.kubelet_cpus import NONE, managers
from criproxy.install.runtime import NriOfRuntime
from criproxy.install.steps import KUBELET, PROGRAM, START, Check, File, Folder, Run, Step
from criproxy.install.texts import CannotEdit, environment_of, flag, split, with_flag
from criproxy.install.verification import ReadNode
from criproxy.process.http.address import Address

_RIVAL = re.compile(
    r"cri-resmgr|nri-resource-policy-.*|nri-resmgr-.*|koordlet|koord-runtime-proxy|katalyst-agent|dracpu"
    r"|cpusetter|cpu-pooler"  # the last two are CPU-Pooler's
)
_CLASSES = re.compile(r"^[\"']?classes[\"']?\s*:", re.MULTILINE)
"""A policy file with classes."""
SERVE_OPTIONS = ("log-level", "log-format", "trace-calls")
"""Options of `criproxy serve` that users may set beside those with an option of their own."""
_RIVAL_PLUGIN = re.compile(r"\d\d-.*(topology-aware|balloons|resource-policy).*")
_RIVAL_SOCKETS = {
    "CRI Resource Manager": "/run/cri-resmgr/cri-resmgr.sock",
    "Koordinator's runtime proxy": "/run/koord-runtimeproxy/runtimeproxy.sock",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks for."""

    runtime: str = ""
    """Path of the runtime's socket; empty: that of the kubelet's endpoint, or the one that exists."""
    policy: str | None = None
    """The policy file's content; None: the node's file stays, or gets the default."""
    kubeconfig: str = ""
    """The file with which `read_node` asks; empty: nobody asks whether the node is Ready."""
    http: str | None = None
    """Where criproxy serves its page and metrics; empty: nowhere, if an installation has set it; None: as it is."""
    page_token: str = ""
    """What clients of the page need; empty: an installation's former one is removed, unless `http` is None."""
    serve: Mapping[str, str] | None = None
    """Values of `SERVE_OPTIONS`; those that are not in it and that an installation has set are removed. None: as they
    are."""
    controls: bool = False
    """Whether `criproxy controls` runs even if the policy file has no classes."""
    nri: bool = False
    """Whether criproxy is to be a plugin of the runtime, and the kubelet calls that."""
    read_node: ReadNode | None = None


def option(host: Host, name: str) -> str | None:
    """Return the value of the option ``--name`` of criproxy's unit; None without it."""
    return _option(host.read(paths.DEFAULTS) or "", name)


def _option(text: str, name: str) -> str | None:
    return flag(split(environment_of(text).get(paths.OPTIONS, "")), name)


def runtime_of(kubelet: Kubelet) -> str:
    """Return the path of the runtime's socket, as the node shows it."""
    if paths.is_ours(kubelet.endpoint):
        return configured_runtime(kubelet.host)
    if kubelet.endpoint:
        return paths.socket_of(kubelet.endpoint)
    if kubelet.is_embedded:
        return paths.K3S_CONTAINERD
    existing = (path for path in paths.RUNTIMES if kubelet.host.is_socket(path))
    return next(existing, paths.CONTAINERD)


def configured_runtime(host: Host) -> str:
    """Return the socket that criproxy's own options name, or its default one; of a node that already has criproxy."""
    return paths.socket_of(option(host, "runtime-endpoint") or paths.CONTAINERD)


def unit_texts(host: Host) -> dict[str, str]:
    """Return the texts of criproxy's unit files that the node has, by name."""
    texts = {name: unit_text(host, name) for name in (*paths.UNITS, *paths.OPTIONAL_UNITS)}
    return {name: text for name, text in texts.items() if text is not None}


def active_units(host: Host, units: Sequence[str] = paths.ACTIVE) -> list[str]:
    """Return those of criproxy's *units* that are both enabled and active."""
    words, existing = ("is-enabled", "is-active"), units if unit_texts(host) else ()
    return [unit for unit in existing if all(host.run(["systemctl", word, unit])[0] == 0 for word in words)]


def stop_controls() -> Iterator[Run]:
    """Yield steps that, taken back, stop what applies classes outside of CRI, and put back what it has changed."""
    yield Run("stop what applies classes outside of CRI", START, undo_command=paths.STOP_CONTROLS)
    yield Run("put back what classes have set", START, undo_command=paths.PUT_BACK)


@dataclass(frozen=True)
class Plan:
    """An installation on one node; it reads the node, and changes nothing."""

    kubelet: Kubelet
    request: Request
    payload: paths.Payload
    journal: Journal

    @cached_property
    def host(self) -> Host:
        """The node."""
        return self.kubelet.host

    @cached_property
    def runtime(self) -> str:
        """The path of the runtime's socket."""
        return self.request.runtime or runtime_of(self.kubelet)

    @cached_property
    def _nri(self) -> NriOfRuntime:
        return NriOfRuntime(self.kubelet, self.runtime)

    @cached_property
    def socket(self) -> str:
        """The path of criproxy's socket."""
        return paths.CRIO_SOCKET if self.runtime.endswith("run/crio/crio.sock") else paths.SOCKET

    @cached_property
    def is_active(self) -> bool:
        """Whether criproxy is enabled and runs."""
        return len(active_units(self.host)) == len(paths.ACTIVE)

    @cached_property
    def policy(self) -> str | None:
        """The policy file with which criproxy is to run; None: there is none."""
        given = (self.request.policy, self.host.read(paths.POLICY), self.payload.policy)
        return next((text for text in given if text is not None), None)

    @cached_property
    def program(self) -> str:
        """The version of the program on the node; empty if it is missing."""
        if not self.host.exists(paths.PROGRAM):
            return ""
        modules = (f"{folder}/site-packages/criproxy/__init__.py" for folder in self.host.entries(f"{paths.HOME}/lib"))
        versions = (re.search(r'^__version__ = "(.*)"$', self.host.read(path) or "", re.MULTILINE) for path in modules)
        return next((version[1] for version in versions if version), "unknown version")

    @cached_property
    def is_package(self) -> bool:
        """Whether the node's package manager has installed it."""
        return self.host.exists(paths.PACKAGE_LIST)

    def has_written(self, name: str) -> bool:
        """Whether an installation has set the option ``--name`` of criproxy's unit, and none has removed it since."""
        steps, setting = self.journal.steps[: self.journal.completed], paths.setting_of(name)
        texts = [step.text for step in steps if isinstance(step, File) and step.setting == setting]
        return bool(texts) and _option(texts[-1] or "", name) is not None

    def about(self) -> Iterator[str]:
        """Yield what was found."""
        yield f"node: {self.kubelet.kind}, the kubelet runs in {self.kubelet.unit}"
        yield f"kubelet's endpoint: {self.kubelet.endpoint or 'its default'}"
        yield f"runtime: unix://{self.runtime}"
        if driver := self._cgroup_drivers[0]:
            yield f"cgroup driver: {driver}"
        program = f"{self.program}, {'installed' if self.is_package else 'not installed'} from a package"
        missing = f"none on the node; this one has version {__version__}" if self.payload.home else "none"
        yield f"program: {program if self.program else missing}"

    def problems(self) -> Iterator[str]:
        """Yield the reasons for which criproxy cannot be installed now."""
        yield from rivals(self.kubelet)
        yield from managers(self.kubelet)
        if not self.host.is_socket(self.runtime):
            yield f"no runtime listens on {self.runtime}: start it, or name its socket with --runtime-endpoint"
        if not self.program and not self.payload.home:
            yield f"there is no program {paths.PROGRAM}: install the deb, or follow step 1 of docs/install.md"
        units = {*unit_texts(self.host), *self.payload.units}
        if missing := [name for name in paths.UNITS if name not in units]:
            yield f"these units are missing: {', '.join(missing)}: install the deb, or follow step 1 of docs/install.md"
        if self.policy is None:
            yield f"there is no policy file {paths.POLICY}: name one with --policy"
        try:
            files = [step for step in self.steps() if isinstance(step, File)]
        except CannotEdit as error:
            yield str(error)
            return
        for path in dict.fromkeys(file.path for file in files if file.text is not None):
            if self.host.has_other_names(path):
                yield (
                    f"{path} has several hard links, and only this one would change: replace it with a copy: "
                    f"'cp --preserve {path} {path}.new' and 'mv {path}.new {path}'"
                )

    def notes(self) -> Iterator[str]:
        """Yield what is allowed, but may not be intended."""
        topology = self.kubelet.value("topology-manager-policy", "topologyManagerPolicy")
        if topology not in NONE:
            yield (
                f"the kubelet's topologyManagerPolicy is {topology}: without its CPU manager it aligns only devices, "
                "and may refuse pods that criproxy would place"
            )
        if image := self.kubelet.value("image-service-endpoint", "imageServiceEndpoint"):
            yield f"the kubelet calls the image service at {image}, and will continue to do so"
        kubelet, runtime = self._cgroup_drivers
        if kubelet and runtime and kubelet != runtime:
            yield f"the kubelet's cgroup driver is {kubelet}, and the runtime's is {runtime}: they must be the same"
        http, kept = self.request.http, option(self.host, "http-token-file") and not self.has_written("http-token-file")
        if http and not Address.parse(http).is_local and not (self.request.page_token or kept):
            text = f"nobody will be able to open the page at {http}: it is not on loopback, and there is no token"
            yield f"{text}; name a file with one with --http-token-file. Metrics and health checks need no token"

    @cached_property
    def _cgroup_drivers(self) -> tuple[str, str]:
        """The cgroup drivers of the kubelet and of the runtime; empty if unknown."""
        if self.kubelet.is_embedded:
            return "", ""  # it sets both
        kubelet = self.kubelet.value("cgroup-driver", "cgroupDriver") or ""
        containerd = self.host.read("/etc/containerd/config.toml") or ""
        match = re.search(r"^\s*SystemdCgroup\s*=\s*(true|false)", containerd, re.MULTILINE)
        return kubelet, {"true": "systemd", "false": "cgroupfs"}[match[1]] if match else ""

    def steps(self) -> Iterator[Step]:
        """Yield the steps in order; none if there is nothing to do.

        Raises:
            CannotEdit: something has to be done by hand.
        """
        program, units, settings = [*self._program()], [*self._units()], [*self._settings()]
        yield from program
        yield from (*units, *settings)
        if units:
            yield Run("let systemd read the units", PROGRAM, paths.RELOAD, paths.RELOAD)
        if self.request.nri:
            yield from (*self._kubelet(), *self._runtime_nri())
        is_nri = self.request.nri
        works = Check("plugin", paths.PROGRAM, self._remedy) if is_nri else Check("version", self.socket)
        if not self.is_active:
            yield from (Folder(paths.STATE_DIR), Folder(paths.RUN_DIR))
            start = ("systemctl", "enable", "--now", *paths.ACTIVE)
            yield Run("stop criproxy", START, undo_command=paths.STOP)
            yield Run("start criproxy", START, start, paths.release(self.runtime))
            yield works
            if self.host.exists(f"{paths.STATE_DIR}/criproxy.db"):
                undo = (paths.PROGRAM, "release", "--undo")
                yield Run("place containers, if criproxy was released", START, undo)
        else:
            if is_changed := program or units or any(step.path == paths.DEFAULTS for step in settings):
                yield Run("restart criproxy", PROGRAM, paths.RESTART, paths.RESTART)
            if is_changed or self.request.nri:  # no file shows whether the runtime asks a plugin
                yield works
        yield from self._controls(is_new=bool(program or units))
        if not self.request.nri:
            yield from self._kubelet()

    def _runtime_nri(self) -> Iterator[Step]:
        """Yield what switches NRI on in the runtime, and gives plugins time to answer.

        Raises:
            CannotEdit: this has to be done by hand.
        """
        if change := self._nri.change:
            restart = ("systemctl", "restart", change.unit)
            yield File(change.path, change.text, "the runtime takes plugins", START, keep=True)
            yield Run("restart the runtime; containers keep running", START, restart, restart)
            yield Check("version", self.runtime)

    @property
    def _remedy(self) -> str:
        """What may help if the runtime does not ask criproxy, although its configuration says so; else empty."""
        given = paths.socket_of(option(self.host, "nri") or self._nri.socket)
        if given != self._nri.socket and not self.has_written("nri"):
            return f"--nri in {paths.DEFAULTS} names {given}, but the runtime takes plugins at {self._nri.socket}"
        if self._nri.change is not None:
            return ""
        restart = f"restart it: 'systemctl restart {self._nri.unit}'; containers keep running"
        return f"if the configuration of the runtime was changed after its start, {restart}"

    def _controls(self, *, is_new: bool) -> Iterator[Step]:
        """Yield the start of what applies classes outside of CRI, if it is wanted."""
        is_wanted = self.request.controls or _CLASSES.search(self.policy or "")
        if active_units(self.host, [paths.CONTROLS]):
            restart = ("systemctl", "restart", paths.CONTROLS)
            if is_new:
                yield Run("restart what applies classes outside of CRI", PROGRAM, restart, restart)
        elif is_wanted and paths.CONTROLS in {*unit_texts(self.host), *self.payload.units}:
            yield Folder(paths.CONTROLS_STATE_DIR)
            yield from stop_controls()
            start = ("systemctl", "enable", "--now", paths.CONTROLS)
            yield Run("apply what classes set outside of CRI", START, start)

    def _program(self) -> Iterator[Folder]:
        if self.payload.home and not self.is_package and self.program != __version__:
            yield Folder(paths.HOME, self.payload.home)

    def _units(self) -> Iterator[File]:
        for name, text in ({} if self.is_package else self.payload.units).items():
            if unit_text(self.host, name) != text:
                yield File(f"{paths.UNIT_FOLDER}/{name}", text, "a unit of criproxy")
        if self.socket == paths.CRIO_SOCKET and not self.request.nri and self.host.read(paths.CRIO_DROP_IN) is None:
            yield File(paths.CRIO_DROP_IN, paths.CRIO_DROP_IN_TEXT, "the path by which the kubelet recognises CRI-O")

    def _settings(self) -> Iterator[File]:
        if self.policy is not None and self.policy != self.host.read(paths.POLICY):
            yield File(paths.POLICY, self.policy, "the policy", keep=True)
        token, former = self.request.page_token, self.host.read(paths.PAGE_TOKEN)
        if token and token != former:
            yield File(paths.PAGE_TOKEN, token, "the token of the page", mode=0o600)
        elif not token and self.request.http is not None and former and self.has_written("http-token-file"):
            yield File(paths.PAGE_TOKEN, None, "the page needs no token any more")
        text = self.host.read(paths.DEFAULTS) or ""
        for name, value, why in self._options():
            if value != option(self.host, name):
                text = with_flag(text, paths.OPTIONS, name, value)
                yield File(paths.DEFAULTS, text, why, setting=paths.setting_of(name))

    def _options(self) -> Iterator[tuple[str, str | None, str]]:
        """Yield the options of criproxy's unit that are to have a value, or none; others stay as they are."""
        if self.runtime != configured_runtime(self.host):
            yield "runtime-endpoint", f"unix://{self.runtime}", "the runtime's socket"
        if self.request.nri and (option(self.host, "nri") is None or self.has_written("nri")):
            yield "nri", f"unix://{self._nri.socket}", "criproxy is a plugin of the runtime"
        elif not self.request.nri:
            yield "nri", None, "criproxy serves the kubelet"
        wanted = dict[str, str]()
        if self.request.http is not None:
            token_file = paths.PAGE_TOKEN if self.request.page_token else ""
            wanted |= {"http": self.request.http, "http-token-file": token_file}
        if self.request.serve is not None:
            wanted |= {name: self.request.serve.get(name, "") for name in SERVE_OPTIONS}
        for name, value in wanted.items():
            if value:
                yield name, value, f"the option --{name}"
            elif self.has_written(name):
                yield name, None, f"without the option --{name}"

    def _kubelet(self) -> Iterator[Step]:
        restart, nri = ("systemctl", "restart", self.kubelet.unit), self.request.nri
        if nri:
            changes = endpoint = kubelet_files.to_runtime(self.kubelet, self.runtime)
        else:
            endpoint = kubelet_files.to_criproxy(self.kubelet, self.socket)
            changes = [*kubelet_files.drop_in(self.kubelet), *endpoint]
        yield from changes
        if any(change.path.startswith(kubelet_files.drop_in_path(self.kubelet, "")) for change in changes):
            yield Run("let systemd read the kubelet's unit", KUBELET, paths.RELOAD, paths.RELOAD)
        if endpoint:
            yield Run("restart the kubelet", KUBELET, restart, restart)
            if not nri:
                yield Check("calls", paths.PROGRAM)
            if self.request.kubeconfig:
                yield Check("ready", self.request.kubeconfig)


def rivals(kubelet: Kubelet) -> Iterator[str]:
    """Yield a sentence about each other program that pins containers."""
    host, remove = kubelet.host, "two programs that pin the same containers undo each other's changes; remove it first"
    for name in sorted({*filter(_RIVAL.fullmatch, _programs(host))}):
        yield f"{name} runs on this node: {remove}"
    for path in host.entries("/opt/nri/plugins"):
        if _RIVAL_PLUGIN.fullmatch(path.rpartition("/")[2]):
            yield f"the runtime starts the NRI plugin {path}: {remove}"
    for name, socket in _RIVAL_SOCKETS.items():
        if host.is_socket(socket) or Path(socket).parent.name in kubelet.endpoint:
            yield f"{name} has the socket {socket}: {remove}, and undo its change of the kubelet's endpoint"


def _programs(host: Host) -> Iterator[str]:
    """Yield the names of running programs."""
    for folder in host.entries("/proc"):
        if folder.removeprefix("/proc/").isdecimal():
            with suppress(OSError):  # the process has ended
                yield Path((host.read(f"{folder}/cmdline") or "").partition("\0")[0]).name
