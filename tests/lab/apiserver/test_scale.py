"""How many requests each agent makes: a short run of what measures 1,000 of them."""

from collections.abc import Iterator

import pytest

from lab.apiserver.scale import Plan, Run, running

AGENTS = 5
OWN = ("nodes", "nodepolicies", "nodeplacements", "noderesourcetopologies")


def requests_of(run: Run) -> dict[str, int]:
    """The requests of the last phase."""
    return dict(run.phases[-1].requests)


def each(verb: str) -> Iterator[tuple[str, int]]:
    """One request of each agent for each of what it follows."""
    return ((f"{verb} {plural}", AGENTS) for plural in OWN)


@pytest.mark.slow
async def test_an_agent_asks_no_more_than_needed() -> None:
    """At the start, at rest, when pods come and go, when the server was gone, and when its objects were deleted."""
    writes = {"patch nodeplacements": 2 * AGENTS, "patch noderesourcetopologies": AGENTS}
    signs = {"get nodes": AGENTS, "patch nodes": AGENTS}
    async with running(AGENTS, Plan(first_contact_s=0.1, rest_s=0.5, pods_s=0.1, gone_s=0.1)) as run:
        await run.start()
        assert requests_of(run) == dict(each("list")) | dict(each("watch")) | writes | signs
        await run.rest()
        assert requests_of(run) == {}
        await run.pods()
        assert requests_of(run) == {"patch nodeplacements": AGENTS, "patch noderesourcetopologies": AGENTS}
        await run.gone()
        again = requests_of(run)  # an agent that was refused a connection reads all before it watches
        assert {what: many for what, many in again.items() if "watch" in what} == dict(each("watch"))
        assert all(again.get(what, 0) <= many for what, many in each("list"))
        assert again.keys() <= {what for verb in ("watch", "list") for what, _ in each(verb)}
        await run.wiped()
        assert requests_of(run) == writes
