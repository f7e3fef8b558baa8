"""Shows scenes on a terminal until the user has seen enough, or once."""

import time

from criproxy.api.views.top.scene import Scene
from criproxy.cli.render.console import console
from criproxy.cli.screen.asker import Asker
from criproxy.cli.screen.paint import Painter
from criproxy.cli.screen.render.frame import extent, frame
from criproxy.cli.screen.render.view import View, pressed
from criproxy.cli.screen.scenes import Scenes
from criproxy.cli.screen.terminal import Terminal, Woken

FIRST_S = 0.3
"""After so long, the first loads of CPUs are shown."""


class Loop:
    """One terminal, one asker."""

    def __init__(self, terminal: Terminal, scenes: Scenes, asker: Asker, view: View, interval_s: float) -> None:
        self._terminal, self._scenes, self._asker, self._view = terminal, scenes, asker, view
        self._interval_s = interval_s
        self._painter = Painter(console())
        self._scene = Scene()

    def run(self) -> None:
        """Until the user quits."""
        self._asker.ask()
        self._read()
        next_s = time.monotonic() + min(FIRST_S, self._interval_s)
        while True:
            self._show()
            woken = self._terminal.wait(next_s - time.monotonic())
            if woken.closed or not self._handled(woken):
                return
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + self._interval_s
                self._asker.ask()
                self._read()

    def _read(self) -> None:
        if not self._view.frozen:
            self._scenes.read(self._asker.told)

    def _handled(self, woken: Woken) -> bool:
        """Do what was asked for; False: quit."""
        if woken.repaint or "ctrl-l" in woken.keys:
            self._painter.forget()
        for key in woken.keys:
            shown = extent(self._scene, self._view, *self._terminal.size)
            view = pressed(self._view, key, shown.room, shown.last)
            if view is None:
                return False
            self._view = view
        return True

    def _show(self) -> None:
        if not self._view.frozen:
            self._scene = self._scenes.scene(self._asker.told)
        size = self._terminal.size
        sent = self._painter.paint(frame(self._scene, self._view, *size), size)
        if sent:
            self._terminal.write(sent)
