"""A small library for SVG: boxes that lay out their contents. It is independent of machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log

FONT_PX = 12
CHARACTER_PX, BOLD_PX = 7.2, 8.0
"""The mean width of a character in wide sans-serif fonts of this size, so that no text is too long."""
LINE_PX = 17
PAD_PX = 8
RAGGED_WEIGHT = 1.5
"""The weight of empty cells in the last row of a grid, relative to a bad aspect ratio."""
GAP_PX = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """A drawing with its top left corner at 0, 0; sizes in pixels."""

    width: float
    height: float
    parts: tuple[str, ...] = ()
    """Its own SVG elements."""
    inner: tuple[tuple[float, float, "Shape"], ...] = ()
    """The shapes inside, at x and y."""

    def render(self, x: float = 0, y: float = 0) -> list[str]:
        """Return the SVG elements, one a line, moved by *x* and *y*."""
        lines = [f'<g transform="translate({x:g} {y:g})">', *self.parts]
        for dx, dy, shape in self.inner:
            lines += shape.render(dx, dy)
        return [*lines, "</g>"]


@dataclass(frozen=True, slots=True)
class Style:
    """The style of a box: the class of its rectangle, and its distances in pixels."""

    css: str
    pad: float = PAD_PX
    gap: float = GAP_PX
    radius: float = 4
    tooltip: str = ""


def text(content: str, css: str = "", *, font_px: float = FONT_PX, bold: bool = False) -> Shape:
    """Return a line of text; *font_px* and *bold* describe the style of the class *css*."""
    attribute = f' class="{css}"' if css else ""
    width = len(content) * (BOLD_PX if bold else CHARACTER_PX) * font_px / FONT_PX
    height = LINE_PX * font_px / FONT_PX
    return Shape(width, height, (f'<text y="{font_px:g}"{attribute}>{escape(content)}</text>',))


def cell(content: str, style: Style, width: float, height: float) -> Shape:
    """Return a small rectangle with centered text and a tooltip."""
    parts = (
        _rect(style, width, height),
        f'<text class="cell" x="{width / 2:g}" y="{height / 2 + 4:g}">{escape(content)}</text>',
    )
    return Shape(width, height, parts)


def box(style: Style, lines: Sequence[Shape], body: Shape | None = None) -> Shape:
    """Return a rectangle around lines of text and, below them, a body."""
    stack = [*lines, *([body] if body else [])]
    inner, y = [], style.pad
    for number, shape in enumerate(stack):
        if number and shape is body:
            y += style.pad / 2
        inner.append((style.pad, y, shape))
        y += shape.height
    width = max((shape.width for shape in stack), default=0) + 2 * style.pad
    return Shape(width, y + style.pad, (_rect(style, width, y + style.pad),), tuple(inner))


def _rect(style: Style, width: float, height: float) -> str:
    shape = f'<rect class="{style.css}" width="{width:g}" height="{height:g}" rx="{style.radius:g}"'
    return f"{shape}><title>{escape(style.tooltip)}</title></rect>" if style.tooltip else f"{shape}/>"


def stack(shapes: Sequence[Shape], gap: float = GAP_PX) -> Shape:
    """Arrange shapes below each other."""
    return grid(shapes, 1, gap)


def wrap(shapes: Sequence[Shape], width: float, gap: float = GAP_PX) -> Shape:
    """Arrange shapes side by side, in as many lines as *width* requires."""
    inner: list[tuple[float, float, Shape]] = []
    x = y = height = widest = 0.0
    for shape in shapes:
        if x and x + shape.width > width:
            x, y, height = 0.0, y + height + gap / 2, 0.0
        inner.append((x, y, shape))
        x, height = x + shape.width + gap, max(height, shape.height)
        widest = max(widest, x - gap)
    return Shape(widest, y + height, inner=tuple(inner))


def grid(shapes: Sequence[Shape], columns: int, gap: float = GAP_PX, row_gap: float | None = None) -> Shape:
    """Arrange shapes in rows of *columns*, each column as wide as its widest shape."""
    row_gap = gap if row_gap is None else row_gap
    rows = [shapes[start : start + columns] for start in range(0, len(shapes), columns)]
    widths = [max(shape.width for shape in shapes[column::columns]) for column in range(min(columns, len(shapes)))]
    inner, y = [], 0.0
    for row in rows:
        x = 0.0
        for shape, width in zip(row, widths, strict=False):
            inner.append((x, y, shape))
            x += width + gap
        y += max(shape.height for shape in row) + row_gap
    return Shape(sum(widths) + gap * max(len(widths) - 1, 0), max(y - row_gap, 0), inner=tuple(inner))


def flow(shapes: Sequence[Shape], gap: float = GAP_PX, ratio: float = 1.6) -> Shape:
    """Arrange shapes in the grid that is closest to *ratio* of width to height, preferably with a full last row."""
    grids = [grid(shapes, columns, gap) for columns in range(1, len(shapes) + 1)]
    if not grids:
        return Shape(0, 0)

    def misfit(columns: int, shape: Shape) -> float:
        ragged = ceil(len(shapes) / columns) * columns - len(shapes)
        return abs(log(shape.width / max(shape.height, 1) / ratio)) + RAGGED_WEIGHT * ragged / len(shapes)

    return min(enumerate(grids, 1), key=lambda each: misfit(*each))[1]


def document(content: Shape, css: str, definitions: str, title: str) -> str:
    """Return a self-contained SVG file."""
    width, height = content.width + 2 * PAD_PX, content.height + 2 * PAD_PX
    sizes = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    font = f'font-family="Helvetica, Arial, sans-serif" font-size="{FONT_PX}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {sizes} {font}>',
            f"<title>{escape(title)}</title>",
            f"<style>{css}</style>",
            f"<defs>{definitions}</defs>",
            f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
            *content.render(PAD_PX, PAD_PX),
            "</svg>",
        ]
    )
