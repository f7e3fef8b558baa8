"""Makes pictures smaller: the browser reduces a picture to 256 colours, and we write them as an indexed PNG file."""

import struct
import zlib
from base64 import b64decode, b64encode

from playwright.async_api import Browser

REDUCE = """async data => {
    const bitmap = await createImageBitmap(await (await fetch('data:image/png;base64,' + data)).blob());
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height), context = canvas.getContext('2d');
    context.drawImage(bitmap, 0, 0);
    const pixels = new Uint32Array(context.getImageData(0, 0, bitmap.width, bitmap.height).data.buffer);
    const counts = new Map();
    for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
    const parts = pixel => [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
    const apart = ([r, g, b], [x, y, z]) => (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2;
    const kept = [], palette = [];
    for (const [pixel] of [...counts].sort((a, b) => b[1] - a[1])) {
        if (kept.length === 256 || palette.some(each => apart(each, parts(pixel)) < 60)) continue;
        kept.push(pixel);
        palette.push(parts(pixel));
    }
    const nearest = new Map(kept.map((pixel, index) => [pixel, index]));
    const indices = new Uint8Array(pixels.length);
    pixels.forEach((pixel, at) => {
        let found = nearest.get(pixel);
        if (found === undefined) {
            let least = Infinity;
            palette.forEach((each, index) => {
                const far = apart(each, parts(pixel));
                if (far < least) { least = far; found = index; }
            });
            nearest.set(pixel, found);
        }
        indices[at] = found;
    });
    let text = '';
    for (let at = 0; at < indices.length; at += 32768) text += String.fromCharCode(...indices.subarray(at, at + 32768));
    return {width: bitmap.width, height: bitmap.height, palette: palette.flat(), indices: btoa(text)};
}"""
"""Every colour becomes the nearest of the 256 that most pixels have, without those that are much alike."""


async def shrunk(of: Browser, picture: bytes) -> bytes:
    """The PNG file *picture* with at most 256 colours."""
    context = await of.new_context()
    try:
        page = await context.new_page()
        found = await page.evaluate(REDUCE, b64encode(picture).decode())
    finally:
        await context.close()
    return indexed(found["width"], found["height"], bytes(found["palette"]), b64decode(found["indices"]))


def indexed(width: int, height: int, palette: bytes, indices: bytes) -> bytes:
    """A PNG file of *indices*, row by row, into *palette*, which has three bytes for each colour."""
    rows = b"".join(b"\0" + indices[at : at + width] for at in range(0, width * height, width))
    parts: list[tuple[bytes, bytes]] = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
