"""The first lines of `criproxy top`: which node it is, how much of it is in use, and what is wrong. Pure."""

from criproxy.api.views.top.scene import Scene
from criproxy.cli.render import words
from criproxy.cli.screen.render.lines import (
    BAR,
    NOTE,
    QUIET,
    TROUBLE,
    Line,
    Piece,
    cropped,
    filled,
    gauge,
    heat,
    line,
    percent,
    width_of,
)
from criproxy.model.text.amounts import format_bytes

MOST_NOTICES = 2


def head_lines(scene: Scene, width: int) -> list[Line]:
    """Who answers, how the node is, and what is wrong."""
    lines = [_title(scene, width), _node(scene, width)]
    if scene.problem:
        lines.append(cropped(line((scene.problem, TROUBLE)), width))
    wrong = [text for is_wrong, text in (scene.told.notices if scene.told else ()) if is_wrong]
    lines += [cropped(line((f"WRONG: {text}", TROUBLE)), width) for text in wrong[:MOST_NOTICES]]
    if more := len(wrong) - MOST_NOTICES:
        lines += [line((f"{more} more; criproxy status --check", NOTE))] if more > 0 else []
    return lines


def _title(scene: Scene, width: int) -> Line:
    told = scene.told
    who = f" criproxy top  {scene.host}"
    if told is not None:
        up = f"  up {words.ago(told.started, scene.at_s)}" if told.started and told.source == "daemon" else ""
        who += f"  policy {told.policy}{up}" if told.policy else up
    blank = width - width_of(who) - width_of(scene.clock) - 1
    return filled([(who, BAR), (" " * max(1, min(blank, 200)), BAR), (scene.clock, BAR)], min(width, 1000), BAR)


def _node(scene: Scene, width: int) -> Line:
    """How much of the machine is in use."""
    load, memory = scene.rates.mean_load, scene.rates.memory
    size = 10 if width < 100 else 16
    pieces: list[Piece | str] = [(" CPU ", QUIET), (gauge(load, size), heat(load)), f" {percent(load)}"]
    if memory:
        ratio = 1 - memory.available_bytes / memory.total_bytes if memory.total_bytes else 0.0
        pieces += [("  memory ", QUIET), (gauge(ratio, size), heat(ratio)), f" {percent(ratio)}"]
        pieces += [(f" of {format_bytes(memory.total_bytes)}", QUIET)] if width >= 100 else []
    if scene.told:
        sets, capacity = scene.told.sets, scene.told.capacity
        pieces += [("  exclusive ", QUIET), f"{len(sets['exclusive'])} of {'?' if capacity is None else capacity}"]
        pieces += [("  free ", QUIET), f"{len(sets['free'])}" if "free" in sets else "?"]
        pieces += [("  pods ", QUIET), f"{scene.told.pods}"] if width >= 90 else []
    return cropped(line(*pieces), width)
