"""Pure: the steps that turn a node without criproxy, or with a part of it, into one whose kubelet calls it."""

from collections.abc import Iterator
from dataclasses import dataclass

from criproxy.install.planning import edits, endpoint, paths, preflight
from criproxy.install.planning.facts import Facts
from criproxy.install.planning.steps import Check, Copy, Made, Remove, Run, Step, Write

SYSTEMCTL = "systemctl"
RELOAD = (SYSTEMCTL, "daemon-reload")
START, RESTART, RESTART_KUBELET = "start criproxy", "restart criproxy", "restart the kubelet"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asks for."""

    runtime: str = ""
    """Path of the runtime's socket; empty: that of the kubelet's endpoint, or the one that exists."""
    policy: str | None = None
    """The policy file's content; None: the node's file stays, or gets the default."""
    kubeconfig: str = ""
    """A file with which the node's state can be read."""
    http: str | None = None
    """Where criproxy serves its page and metrics; empty: nowhere, if an installation has set it; None: as it is."""
    page_token: str = ""
    """What clients of the page need; empty: an installation's former one is removed, unless `http` is None."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation would do."""

    about: tuple[str, ...]
    """What was found."""
    problems: tuple[str, ...]
    """Why nothing can be done."""
    notes: tuple[str, ...]
    steps: tuple[Step, ...]


def plan(facts: Facts, wishes: Wishes) -> Plan:
    """Return the steps for a node; none if there is nothing to do."""
    runtime = wishes.runtime or runtime_of(facts)
    socket = paths.CRIO_SOCKET if runtime.endswith("run/crio/crio.sock") else paths.SOCKET
    about = (
        f"node: {facts.kind}, the kubelet runs in {facts.kubelet}",
        f"kubelet's endpoint: {facts.endpoint or 'its default'}",
        f"runtime: unix://{runtime}",
        *(f"cgroup driver: {driver}" for driver in preflight.cgroup_drivers(facts)[:1] if driver),
        f"program: {_program(facts)}",
    )
    against = tuple(preflight.problems(facts, runtime))
    try:
        steps = tuple(_Steps(facts, wishes, runtime, socket).all())
    except edits.CannotEdit as error:
        against, steps = (*against, str(error)), ()
    against += tuple(preflight.of_links(facts, dict.fromkeys(step.path for step in steps if isinstance(step, Write))))
    return Plan(about, against, tuple(preflight.notes(facts)), steps)


def runtime_of(facts: Facts) -> str:
    """Return the path of the runtime's socket, as the node shows it."""
    if paths.is_ours(facts.endpoint):
        return facts.configured_runtime
    if facts.endpoint:
        return paths.socket_of(facts.endpoint)
    if facts.kind.embeds_kubelet:
        return paths.K3S_CONTAINERD
    return next((path for path in paths.RUNTIMES if path in facts.sockets), paths.CONTAINERD)


def release(runtime: str) -> tuple[str, ...]:
    """Return the command that unpins all containers."""
    return (paths.PROGRAM, "release", "--runtime-endpoint", f"unix://{runtime}")


def _program(facts: Facts) -> str:
    if not facts.program:
        return f"none on the node; this one has version {facts.brought.version}" if facts.brought.home else "none"
    return f"{facts.program}, {'installed' if facts.is_package else 'not installed'} from a package"


@dataclass(frozen=True, slots=True)
class _Steps:
    facts: Facts
    wishes: Wishes
    runtime: str
    socket: str

    def all(self) -> Iterator[Step]:
        """Yield all steps in order; those that only take something back precede what they need to have taken back."""
        program, units, settings = [*self._program()], [*self._units()], [*self._settings()]
        is_running = facts_active(self.facts)
        restarts = is_running and bool(program or units or [step for step in settings if step.path == paths.DEFAULTS])
        if restarts:
            yield Run("leave criproxy restarted", undo=((SYSTEMCTL, "restart", "criproxy.service"),), undo_if=RESTART)
        yield from program
        if units:
            yield Run("reload the former units", undo=(RELOAD,))
        yield from units
        yield from settings
        if units:
            yield Run("let systemd read the units", do=(RELOAD,))
        if restarts:
            yield Run(RESTART, do=((SYSTEMCTL, "restart", "criproxy.service"),))
        if not is_running:
            yield from self._start()
        if restarts or not is_running:
            yield Check("version", self.socket)
        if not is_running and self.facts.has_state:
            yield Run("place containers, if criproxy was released", do=((paths.PROGRAM, "release", "--undo"),))
        yield from self._kubelet()

    def _program(self) -> Iterator[Step]:
        brought = self.facts.brought
        if brought.home and not self.facts.is_package and brought.version != self.facts.program:
            yield Copy(brought.home, paths.HOME)

    def _units(self) -> Iterator[Write]:
        if not self.facts.is_package:
            for name, text in self.facts.brought.units.items():
                if self.facts.unit_texts.get(name) != text:
                    yield Write(f"{paths.UNIT_FOLDER}/{name}", text, "a unit of criproxy")
        if self.socket == paths.CRIO_SOCKET and paths.CRIO_DROP_IN not in self.facts.texts:
            yield Write(paths.CRIO_DROP_IN, paths.CRIO_DROP_IN_TEXT, "the path by which the kubelet recognises CRI-O")

    def _settings(self) -> Iterator[Write | Remove]:
        has = self.facts.texts.get(paths.POLICY)
        given = (self.wishes.policy, has, self.facts.brought.policy)
        wanted = next((text for text in given if text is not None), None)
        if wanted is not None and wanted != has:
            yield Write(paths.POLICY, wanted, "the policy", keep=True)
        yield from self._token()
        text = self.facts.texts.get(paths.DEFAULTS, "")
        for name, value, why in self._options():
            if value != self.facts.option(name):
                text = edits.with_flag(text, paths.OPTIONS, name, value)
                yield Write(paths.DEFAULTS, text, why, paths.setting_of(name))

    def _options(self) -> Iterator[tuple[str, str | None, str]]:
        """Yield the options of criproxy's unit that are to have a value, or none; others stay as they are."""
        if self.runtime != self.facts.configured_runtime:
            yield "runtime-endpoint", f"unix://{self.runtime}", "the runtime's socket"
        if self.wishes.http is None:
            return
        wanted = {"http": self.wishes.http, "http-token-file": paths.PAGE_TOKEN if self.wishes.page_token else ""}
        for name, value in wanted.items():
            if value:
                yield name, value, f"the option --{name}"
            elif self.facts.has_written(name):
                yield name, None, f"without the option --{name}"

    def _token(self) -> Iterator[Write | Remove]:
        wanted, has = self.wishes.page_token, self.facts.texts.get(paths.PAGE_TOKEN)
        if wanted and wanted != has:
            yield Write(paths.PAGE_TOKEN, wanted, "the token of the page", mode=0o600)
        elif not wanted and self.wishes.http is not None and has and self.facts.has_written("http-token-file"):
            yield Remove(paths.PAGE_TOKEN, "the page needs no token any more")

    def _start(self) -> Iterator[Step]:
        yield Made(paths.STATE_DIR)
        yield Made(paths.RUN_DIR)
        yield Run("stop criproxy", undo=((SYSTEMCTL, "disable", "--now", *paths.ACTIVE),), undo_if=START)
        start = (SYSTEMCTL, "enable", "--now", *paths.ACTIVE)
        yield Run(START, do=(start,), undo=(release(self.runtime),), may_fail=True)

    def _kubelet(self) -> Iterator[Step]:
        drop_in, pointing = endpoint.drop_in(self.facts), endpoint.writes(self.facts, self.socket)
        restart = (SYSTEMCTL, "restart", self.facts.kubelet)
        folder = f"{paths.UNIT_FOLDER}/{self.facts.kubelet}.d/"
        of_units = [write for write in (*drop_in, *pointing) if write.path.startswith(folder)]
        if pointing:
            yield Run("leave the kubelet restarted", undo=(restart,), undo_if=RESTART_KUBELET)
        if of_units:
            yield Run("reload the kubelet's former unit", undo=(RELOAD,))
        yield from (*drop_in, *pointing)
        if of_units:
            yield Run("let systemd read the kubelet's unit", do=(RELOAD,))
        if pointing:
            yield Run(RESTART_KUBELET, do=(restart,))
            yield Check("calls", paths.PROGRAM)
        if pointing and self.wishes.kubeconfig:
            yield Check("ready", self.wishes.kubeconfig)


def facts_active(facts: Facts) -> bool:
    """Whether criproxy is enabled and runs."""
    return facts.active >= {*paths.ACTIVE}
