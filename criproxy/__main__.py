"""The program: ``criproxy``, or ``python -m criproxy``."""

import gc
import signal
import sys

_SERVICES = ("serve", "device-plugin")


def run() -> None:
    """Run the command line; Ctrl-C while it is imported ends the program as it does later, without a traceback.

    A service that starts ignores SIGHUP until it can reload: the signal would end it, and it has yet to read its files.
    """
    if sys.argv[1:2] and sys.argv[1] in _SERVICES:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if sys.argv[1:2] == ["serve"]:
        gc.disable()  # until it serves: nothing that it imports is garbage
    try:
        from criproxy.model.late_methods import compile_late  # after the signal: it takes a tenth of a second

        compile_late()
        from criproxy.cli import main
    except KeyboardInterrupt:
        sys.exit("\nAborted!")
    main(prog_name="criproxy")


if __name__ == "__main__":
    run()
