"""A kubelet that only asks for the version of the runtime at its ``--container-runtime-endpoint``."""

import asyncio
import sys
from contextlib import suppress

from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.install.texts import FLAG, flag

PACE_S = 0.1


async def main() -> None:
    """Ask until the end."""
    endpoint = flag(sys.argv[1:], FLAG)
    if endpoint is None:
        sys.exit(f"no --{FLAG}")
    client = RuntimeClient(endpoint)
    while True:
        with suppress(RuntimeCallError):
            await client.version()
        await asyncio.sleep(PACE_S)


if __name__ == "__main__":
    asyncio.run(main())
