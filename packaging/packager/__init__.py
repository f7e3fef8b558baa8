"""Builds what can be installed: wheel, sdist, Debian package, image, chart and SBOM; only `make` runs it, no installed criproxy.

`PYTHONPATH=packaging python -m packager --help` lists its commands.
"""
