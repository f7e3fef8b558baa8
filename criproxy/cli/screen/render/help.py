"""The keys and signs of `criproxy top`. Pure."""

from criproxy.cli.screen.render.lines import HEADING, QUIET, Line, line, rule

KEYS = (
    ("1 to 5, Tab", "everything, CPUs, containers, devices, events"),
    ("c m n x", "sort by CPU use, memory, name, number of exclusive CPUs"),
    ("r", "reverse the order"),
    ("/", "show only containers with a text in their names; Esc: all"),
    ("arrows, PgUp, PgDn", "scroll; also j, k, Home, End"),
    ("space", "freeze the screen, or continue"),
    ("q, Ctrl-C", "quit"),
)
SIGNS = (
    ("bar", "the load of a CPU; its colour shows its owner"),
    ("a, b …", "exclusive to the container with this symbol in the list"),
    ("·", "shared"),
    ("=", "reserved"),
    ("~", "kept for a pod whose containers have ended"),
    ("- x", "not for pods; has just come online"),
    ("CPU", "CPU time that a container uses; 1.00 is one fully used CPU"),
    ("USE", "the same in percent of its exclusive CPUs or its limit"),
    ("MEMORY", "working set, as the kubelet counts it"),
)


def help_lines(width: int) -> list[Line]:
    """Everything, in lines."""
    size = max(len(keys) for keys, _ in KEYS) + 2
    lines = [rule("Keys", width), *(line((keys.ljust(size), HEADING), text) for keys, text in KEYS)]
    lines += [line(), rule("Symbols", width), *(line((sign.ljust(size), HEADING), text) for sign, text in SIGNS)]
    return [*lines, line(), line(("Press any key to go back.", QUIET))]
