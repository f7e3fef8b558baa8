"""Builds all parts of the daemon and connects them.

The data plane serves first: it needs little, and calls that criproxy does not touch need nothing else. What decides
about containers is three times as much to load, which a thread does meanwhile; the calls that concern it wait
(`wire.early`). So `serve` and `options`, which are loaded first, import only what the data plane needs; `start` loads
the controller, and `commands`, `http` and `behind` serve beside it.
"""
