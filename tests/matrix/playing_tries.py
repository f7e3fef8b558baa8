"""Plays one case of a try: containers come before and within it, and at its end all must be right."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from criproxy.model.grant import Grant
from criproxy.placement.invariants import violations
from lab.chaos.checker.cgroups import CpuSet, show
from tests.matrix.fronts import TRY_SCENES
from tests.matrix.moments import MOMENTS
from tests.matrix.play import EXPECTED_ERRORS, FAILURES, STATES
from tests.matrix.scene import RESERVED, Ran, pod
from tests.matrix.trying import ENDS, TryCase, TryScene

WISHES = {"pool.podpools": "pair", "balloon.balloons": "database"}
NOWHERE: CpuSet = frozenset()
LATE = frozenset({"bypass on", "bypass automatic", "disk full"})
"""Who came during these is placed when they are over: maybe only after it was looked, and then sharers give way."""
KILLED = "state cannot be stored; criproxy continues in memory"
"""Logged by a criproxy that is killed here, as one that is really killed cannot."""


class Playing:
    """One case; `problems` are what is wrong with it."""

    def __init__(self, case: TryCase, scene: TryScene) -> None:
        self.case, self.scene = case, scene
        self.problems = list[str]()

    async def run(self) -> None:
        """All of it."""
        case, scene = self.case, self.scene
        await scene.poll(lambda: scene.controller.ready)
        there = [await self._comes("first", 2000), await self._comes("shares", 100)]
        await scene.settled()
        before, grants = scene.running(), scene.controller.node.grants
        await scene.node.tries(scene.tried_text)
        async with MOMENTS[case.meets](scene):
            await self._comes("during", 1000)
            await scene.settled()
            self._holds("meanwhile")
            await ENDS[case.end](scene)
        if case.is_kept:
            await self._becomes_the_file()
        await scene.node.is_back()
        await self._rests("after the try")
        self._in_force()
        if not case.is_kept:
            owners = [ran for ran in there if _owns(grants.get(ran.container_id))]
            self._same("after the try", before, owners)
            await self._leave(ran for ran in scene.runs if ran not in there)
            await self._rests("when others have left")
            self._same("when others have left", before, there)
        await self._comes("last", 1000)
        await self._rests("at the end")

    async def _comes(self, name: str, milli: int) -> Ran:
        """A pod; the first one has wishes, and the smallest is no Guaranteed one."""
        wishes = WISHES if name == "first" else None
        ran = await self.scene.bring(pod(name, milli, wishes, guaranteed=milli >= 1000))
        if ran.refusal:
            self.problems.append(f"{name} does not come up: {ran.refusal}")
        return ran

    async def _leave(self, runs: Iterable[Ran]) -> None:
        for ran in runs:
            await self.scene.kubelet.remove_pod(ran.sandbox_id)

    async def _becomes_the_file(self) -> None:
        """What is kept becomes the policy file, which moves nobody."""
        scene = self.scene
        await scene.settled()
        before, late, grants = scene.running(), self.case.meets in LATE, scene.controller.node.grants
        owners = (ran for ran in scene.runs if _owns(grants.get(ran.container_id)))
        stay = [ran for ran in owners if ran.pod.name == "first"] if late else scene.runs
        scene.node.file.write_text(scene.tried_text)
        await scene.reload._once(asked=False)
        await scene.settled()
        self._same("when the policy file says what was kept", before, stay)

    def _holds(self, when: str) -> None:
        node = self.scene.controller.node
        self.problems += [f"{when}: {text}" for text in violations(node, RESERVED)]

    async def _rests(self, when: str) -> None:
        """Invariants and --check at rest."""
        answer = await self.scene.settled()
        self._holds(when)
        said = [*answer["problems"], *answer["under_way"]]
        if self.case.meets in FAILURES:  # it goes on to tell of them
            told = {notice["text"] for notice in answer["notices"] if notice["kind"] not in STATES}
            said = [text for text in said if text not in told]
        if self.case.meets in LATE:
            said = [text for text in said if "default/during/main" not in text]
        self.problems += [f"{when}: --check says: {text}" for text in said]

    def _in_force(self) -> None:
        """The policy file, with its policy, is in force, and the node knows it."""
        context, case = self.scene.controller.context, self.case
        policy = case.tried if case.is_kept else case.policy
        found = context.settings.policy_name, context.in_force.loaded.file, context.state.node.configuration
        if found != (policy, str(self.scene.node.file), context.settings.configuration):
            self.problems.append(f"in force is {found}")

    def _same(self, when: str, before: Mapping[str, CpuSet], runs: Iterable[Ran]) -> None:
        now = self.scene.running()
        for ran in runs:
            had, has = before.get(ran.container_id), now.get(ran.container_id)
            if had != has:
                self.problems.append(
                    f"{when}: {ran.pod.name} was on {show(had or NOWHERE)} and is on {show(has or NOWHERE)}"
                )

    def quiet(self) -> None:
        """Nothing is logged as an error but what is meant to be."""
        killed = {KILLED} if self.case.end.startswith("killed") else set[str]()
        meant = EXPECTED_ERRORS.get(self.case.meets, set()) | killed
        logged = ((event, keys) for event, keys in self.scene.log.error_lines if event not in meant)
        self.problems += [f"logged as an error: {event} {keys}" for event, keys in logged]


def _owns(grant: Grant | None) -> bool:
    return grant is not None and bool(grant.exclusive)


async def play(case: TryCase, directory: Path) -> list[str]:
    """What is wrong with *case*: sentences."""
    scene = TRY_SCENES[case.front](directory, case)
    playing = Playing(case, scene)
    async with scene:
        await playing.run()
    playing.quiet()
    return playing.problems
