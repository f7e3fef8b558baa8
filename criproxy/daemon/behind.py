"""What is behind the daemon's sockets: whether it listens, and whether it is another criproxy."""

import asyncio
from dataclasses import dataclass

from criproxy.control.controller import Controller
from criproxy.cri.here import criproxy_behind
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.daemon.options import MAIN, Endpoints
from criproxy.observe.log import structlog

FIRST_PAUSE_S, PAUSE_S = 2.0, 60.0
"""When to ask for a criproxy behind this one: after a start and while nothing answers, and from then on."""
PROBE_S = 1.0
"""How long the runtime may take to accept the connection that says whether it is there."""

log = structlog.get_logger("criproxy.daemon")


@dataclass(slots=True, repr=False)
class Behind:
    """Asks what is behind: two criproxies, one behind the other, would place the same containers."""

    endpoints: Endpoints
    controller: Controller
    problem: str = ""
    """That the runtime is no runtime, in a sentence."""

    async def watch(self) -> None:
        """Ask again and again whether what is behind is another criproxy."""
        while not self.controller.policy_switch.active:  # noqa: ASYNC110 (nothing is placed here, and gRPC is not loaded for it)
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(FIRST_PAUSE_S)  # others load much at a start
        while True:
            client = RuntimeClient(f"unix://{self.endpoints.runtime}", PROBE_S)
            found: str | None = None
            try:
                found = await criproxy_behind(client)
            except RuntimeCallError:
                pass  # it is away: what comes may be another one
            finally:
                await client.close()
            if found is not None:
                self._report(found)
            await asyncio.sleep(FIRST_PAUSE_S if found is None else PAUSE_S)

    async def unreachable(self) -> str:
        """Which socket that calls are passed to does not answer, unless the controller asks there itself; or nothing.

        With the policy none it asks nothing, and of a separate image service it knows nothing.
        """
        asked = (MAIN,) if self.controller.policy_switch.active else ()
        return await probe(self.endpoints, asked) or ""

    def _report(self, found: str) -> None:
        path = self.endpoints.runtime
        text = f"what listens on {path} is another criproxy ({found}), not a runtime: name the runtime's own socket"
        text = f"{text} with --runtime-endpoint, or two of them place the same containers"
        if found and not self.problem:
            log.error("the runtime is another criproxy", endpoint=path, found=found)
        self.problem = text if found else ""


async def probe(endpoints: Endpoints, without: tuple[str, ...] = ()) -> str | None:
    """What is wrong with the first socket, but for those *without*, behind which nothing listens; None if all do."""
    for name, (_, path) in endpoints.pairs.items():
        if name in without:
            continue
        try:
            async with asyncio.timeout(PROBE_S):
                _, writer = await asyncio.open_unix_connection(path)
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or "no answer"
            return f"the {'runtime' if name == MAIN else 'image service'} on {path} cannot be reached: {reason}"
        writer.close()
    return None
