"""``python -m lab.demo``, which `make demo` runs."""

import sys

from criproxy.errors import CriproxyError
from lab.demo.demo import run

try:
    run()
except CriproxyError as error:
    print(f"Error: {error}", file=sys.stderr)
    sys.exit(error.exit_status)
