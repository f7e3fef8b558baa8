"""The program: ``criproxy``, or ``python -m criproxy``."""

import sys


def run() -> None:
    """Run the command line; Ctrl-C while it is imported ends the program as it does later, without a traceback."""
    try:
        from criproxy.cli import main
    except KeyboardInterrupt:
        sys.exit("\nAborted!")
    main(prog_name="criproxy")


if __name__ == "__main__":
    run()
