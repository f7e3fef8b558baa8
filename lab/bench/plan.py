"""A whole run against one runtime: which rows with how many containers known, and what the process itself costs."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.bench import rows
from lab.bench.bars import REFERENCE_US, UNSCALED, Speed
from lab.bench.lives import Lives, Rest, at_rest, lives
from lab.bench.pods import Pods, Sandbox, container_id, remove_containers
from lab.bench.processes import EMBEDDED, Runtime, Serve, Start, measured_start
from lab.bench.rows import Effort
from lab.bench.ways import DIRECT, Memory, Result, Series, Way, memory_of
from lab.emulator.runtime import IMAGE

CRIPROXY = "criproxy"
"""The way that has bars."""
VERSION, LIST, CREATE = "Version", "ListContainers", "CreateContainer"
UNDER_CREATES = f"Version during {rows.CREATES_PER_S} creates/s"
LOADED_AT = 100
"""With how many containers Version is measured under load, and the start."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How much to measure, and what besides criproxy."""

    effort: Effort = rows.FULL
    runs: int = 3
    known: tuple[int, ...] = (0, 100, 1000)
    """Containers that exist, ascending."""
    peers: Mapping[str, Path] = field(default_factory=dict)
    starts: int = 5
    """How often the start is measured in each run."""
    policy: Path = Path("policies/topology-aware.yaml")


@dataclass(frozen=True, slots=True)
class Run:
    """One row in one run, and how slow the machine was meanwhile."""

    result: Result
    speed: Speed


@dataclass(slots=True)
class Findings:
    """Everything that was measured with one runtime."""

    runtime: str
    rows: dict[tuple[str, int], list[Run]] = field(default_factory=dict)
    """Call and known containers → its runs."""
    memory: dict[int, dict[str, Memory]] = field(default_factory=dict)
    """Known containers → way → memory."""
    starts: list[list[Start]] = field(default_factory=list)
    """Run → seconds until the first answer, and seconds of CPU, of each start."""
    creating: list[list[Start]] = field(default_factory=list)
    """The same of starts with a create that waits for them."""
    lives: dict[str, list[Lives]] = field(default_factory=dict)
    """Way → what a container costs that comes and goes, in each run."""
    rests: dict[str, list[Rest]] = field(default_factory=dict)
    """Way → what rest costs, in each run."""
    load_per_cpu: float = 0.0
    """The greatest of the machine's load averages over a minute, taken before each run."""

    def add(self, call: str, known: int, result: Result, speed: Speed) -> None:
        """Note one run of one row."""
        self.rows.setdefault((call, known), []).append(Run(result, speed))


@dataclass(slots=True)
class Bench:
    """Measures one runtime; sockets and logs lie in *directory*."""

    runtime: Runtime
    settings: Settings
    directory: Path
    say: Say
    findings: Findings = field(init=False)
    _pods: Pods = field(init=False)
    _filled: list[Sandbox] = field(init=False, default_factory=list)
    _serve: Serve = field(init=False)

    def __post_init__(self) -> None:
        self.findings = Findings(self.runtime.name)
        self._pods = Pods(IMAGE, self.runtime.cgroups)
        self._serve = Serve(self.runtime.socket, self.directory, self.settings.policy)

    def measure(self) -> Findings:
        """Fill the node step by step, and measure everything at each step."""
        try:
            for known in self.settings.known:
                self._fill(known)
                if known == LOADED_AT:
                    self._starts()
                with self._ways() as ways:
                    for run in range(self.settings.runs):
                        self.say(f"{self.runtime.name}: {known} containers, run {run + 1} of {self.settings.runs}")
                        self._rows(ways, known)
                    self.findings.memory[known] = {way.name: memory_of(way.pid) for way in ways}
        finally:
            with Way(DIRECT, self.runtime.socket, self.runtime.pid) as direct:
                for sandbox in self._filled:
                    sandbox.remove(direct)
        return self.findings

    @contextmanager
    def _serving(self) -> Iterator[Way]:
        """Run criproxy while the block lasts; it remembers what it was told earlier."""
        with self._serve.running() as pid, Way(CRIPROXY, self._serve.listen, pid) as way:
            yield way

    @contextmanager
    def _ways(self) -> Iterator[list[Way]]:
        """All ways, the direct one first."""
        peers = [Way(name, path) for name, path in self.settings.peers.items()]
        with ExitStack() as stack:
            direct = stack.enter_context(Way(DIRECT, self.runtime.socket, self.runtime.pid))
            serving = stack.enter_context(self._serving())
            yield [direct, serving, *map(stack.enter_context, peers)]

    def _fill(self, known: int) -> None:
        """Create what is missing through criproxy, so that it knows them all."""
        missing = known - sum(sandbox.size for sandbox in self._filled)
        if missing:
            self.say(f"{self.runtime.name}: creating {missing} containers")
            with self._serving() as way:
                self._filled += self._pods.fill(way, missing)

    def _rows(self, ways: Sequence[Way], known: int) -> None:
        effort, add = self.settings.effort, self.findings.add
        load_per_cpu = os.getloadavg()[0] / len(os.sched_getaffinity(0))
        self.findings.load_per_cpu = max(self.findings.load_per_cpu, load_per_cpu)
        version, listed = rows.version(ways, effort), rows.list_containers(ways, effort)
        speed = self._speed(listed, version)
        add(VERSION, known, version, speed)
        add(LIST, known, listed, speed)
        if known:
            created, after = rows.create_container(ways, effort, self._pods), rows.version(ways[:1], effort)
            add(CREATE, known, created, self._speed(listed, version, after))
        if known == LOADED_AT:
            add(UNDER_CREATES, known, rows.version_under_creates(ways, effort, self._pods), speed)
            for way in ways[1:]:
                self.findings.lives.setdefault(way.name, []).append(lives(way, effort, self._pods))
                self.findings.rests.setdefault(way.name, []).append(at_rest(way, effort.rest_s))

    def _speed(self, listed: Result, *versions: Result) -> Speed:
        """How slow the machine is; for what takes long, Version is called before and after it, and both count."""
        if self.runtime.name == EMBEDDED:
            return UNSCALED
        version = Series([batch for one in versions for batch in one[DIRECT].batches])
        medians_us = {VERSION: version.median_us, LIST: listed[DIRECT].median_us}
        return Speed({name: medians_us[name] / reference_us for name, reference_us in REFERENCE_US.items()})

    def _starts(self) -> None:
        for _ in range(self.settings.runs):
            self.say(f"{self.runtime.name}: starting criproxy {self.settings.starts} times")
            starts = [measured_start(self._serve, VERSION, rows.VERSION)[0] for _ in range(self.settings.starts)]
            self.findings.starts.append(starts)
            self.findings.creating.append([self._start_with_create() for _ in range(self.settings.starts)])

    def _start_with_create(self) -> Start:
        (request,) = self._filled[0].requests(1)
        start, reply = measured_start(self._serve, CREATE, request)
        with Way(DIRECT, self.runtime.socket, self.runtime.pid) as direct:
            remove_containers(direct, [container_id(reply)])
        return start
