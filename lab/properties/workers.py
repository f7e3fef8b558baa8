"""The same cases in several processes: each takes a chunk of them at a time."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from lab.properties.run import CHUNK, Result, Told, load_all, try_policies


def try_in_processes(names: Sequence[str], examples: int, seed: int, processes: int, told: Told) -> list[Result]:
    """As `try_policies`, in *processes*: the same cases, of which a broken policy may be tried at a few more.

    Of what goes wrong with a policy, the case that comes first counts.
    """
    load_all()  # before they are forked
    results = {name: Result(name) for name in names}
    found_in: dict[str, int] = {}
    waiting, done = list(range(0, examples, CHUNK)), 0
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        running: dict[Future[list[Result]], int] = {}
        while waiting or running:
            while waiting and len(running) < processes:
                first = waiting.pop(0)
                count = min(CHUNK, examples - first)
                running[pool.submit(_chunk, list(names), count, seed + first, list(found_in))] = first
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                first = running.pop(future)
                _add(results, found_in, first, future.result())
                done += min(CHUNK, examples - first)
            told(done, list(results.values()))
    return list(results.values())


def _chunk(names: list[str], count: int, seed: int, skip: list[str]) -> list[Result]:
    return try_policies(names, count, seed, skip=skip)


def _add(results: dict[str, Result], found_in: dict[str, int], first: int, some: Sequence[Result]) -> None:
    for one in some:
        whole = results[one.policy]
        whole.tally.add(one.tally)
        whole.seconds += one.seconds
        if one.finding and first < found_in.get(one.policy, first + 1):
            whole.finding, found_in[one.policy] = one.finding, first
