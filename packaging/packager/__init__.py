"""Builds what can be installed: wheel, sdist, Debian package, image, chart and SBOM.

Only `make` runs it, no installed criproxy.

`PYTHONPATH=packaging python -m packager --help` lists its commands.
"""
