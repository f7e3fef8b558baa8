"""``criproxy controls``: applies what classes set outside of CRI. It has the rights for that; the daemon has none."""

DEFAULT_SOCKET = "/run/criproxy/controls/controls.sock"
DEFAULT_STATE_DIR = "/var/lib/criproxy-controls"
