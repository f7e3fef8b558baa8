"""The pictures of the page in its documentation: ``python -m tests.page.pictures`` takes them anew.

They show a made-up node. Beside them lies a digest of the files of the page, so that a test notices when these have
changed and the pictures have not.
"""

import asyncio
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Browser, Page, expect

from criproxy.api.page.routes import STATIC
from criproxy.simulate.hosts import GIB, machine
from tests.page.browser import Theme, browser, window
from tests.page.scene import busy
from tests.page.stage import Stage, stage

FOLDER = Path(__file__).resolve().parents[2] / "docs/page"
DIGEST = FOLDER / "made-from.txt"
COMMAND = "python -m tests.page.pictures"
MOST_BYTES = 300_000
MACHINE = machine(nodes=2, cores=16, threads=2, packages=2, memory_bytes=128 * GIB)
HOST, SOCKET = "worker-1", "/run/containerd/containerd.sock"
DISGUISE = """([host, socket]) => {
    document.getElementById('host').textContent = host;
    const details = [...document.querySelectorAll('.fact .detail')];
    for (const each of details) if (each.textContent.includes('.sock')) each.textContent = socket;
}"""
"""The names of the machine that takes the pictures are nobody's concern."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What a picture shows."""

    size: str
    theme: Theme
    cpu: int | None = None
    """The owner of this CPU has its story open."""


PICTURES = {
    "desk-light.png": Picture("picture", "light"),
    "desk-dark.png": Picture("picture", "dark", 2),
    "phone.png": Picture("phone", "light"),
}


def digest() -> str:
    """Of the files of the page, which decide how it looks."""
    found = hashlib.sha256()
    for path in sorted(STATIC.iterdir()):
        found.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


async def take(node: Stage, started: Browser, picture: Picture) -> bytes:
    """One picture as a PNG file."""
    async with window(started, node.url, picture.size, picture.theme) as shown:
        page = shown.page
        if picture.cpu is not None:
            await page.locator(f".cpu[data-cpu='{picture.cpu}']").click()
            await expect(page.locator("#story-body")).to_contain_text("Why it is there")
            await page.mouse.move(0, 0)
            await page.evaluate("scrollTo(0, 0)")
        return await _screenshot(page)


async def _screenshot(page: Page) -> bytes:
    """A picture with the made-up names, which every message of the stream takes away again."""
    while True:
        await page.evaluate(DISGUISE, [HOST, SOCKET])
        found = await page.screenshot(animations="disabled")
        if SOCKET in await page.inner_text("#facts"):
            return found


async def write(folder: Path = FOLDER) -> dict[str, int]:
    """Take all pictures; their names and sizes in bytes."""
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 (nothing else runs)
    with TemporaryDirectory(prefix="criproxy-page-") as name:
        async with stage(Path(name), MACHINE) as node, browser() as started:
            await busy(node)
            for file, picture in PICTURES.items():
                (folder / file).write_bytes(await take(node, started, picture))
    (folder / DIGEST.name).write_text(f"{digest()}\n")
    return {file: (folder / file).stat().st_size for file in PICTURES}


def main() -> int:
    """Take them, and print their sizes."""
    found = asyncio.run(write())
    for file, size in found.items():
        print(f"docs/page/{file}: {size / 1000:.0f} kB")
    return int(max(found.values()) > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
