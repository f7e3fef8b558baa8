"""Runs the command line as ``python -m criproxy``."""

from criproxy.cli import main

if __name__ == "__main__":
    main(prog_name="criproxy")
