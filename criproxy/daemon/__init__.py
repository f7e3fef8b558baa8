"""Builds all parts of the daemon and connects them.

The data plane serves first: it needs few modules, and calls that pass through need nothing else. The controller needs
three times as many, which a thread imports meanwhile; the calls that it handles wait (`wire.early`). Therefore `serve`
and `options`, which are imported first, import only what the data plane needs; `start` imports the controller, and
`commands`, `http` and `behind` follow.
"""
