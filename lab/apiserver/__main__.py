"""Run the small API server by hand: ``python -m lab.apiserver [PORT]``."""

import asyncio
import sys

from lab.apiserver.server import ApiServer


async def main() -> None:
    """Serve for ever."""
    server = ApiServer(bookmark_s=60.0)
    server.port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    async with server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
