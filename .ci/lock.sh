#!/usr/bin/env bash
# Writes three files with exact versions and hashes: .ci/requirements.lock has every library of pyproject.toml with its
# dev extra; packaging/requirements.lock has those that the program needs, in the same versions, for packages;
# .ci/pip.lock has the pip that installs them.
# Keeps the versions that still fit; --upgrade takes the newest, --upgrade-package NAME of one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly DEVELOPMENT=.ci/requirements.lock RUNTIME=packaging/requirements.lock PIP=.ci/pip.lock
readonly TOOL=build/lock-venv
[[ -x $TOOL/bin/pip-compile ]] || {
    .venv/bin/python -m venv --clear "$TOOL"
    "$TOOL/bin/python" -m pip install --quiet --disable-pip-version-check 'pip-tools>=7.5,<8'
}

# Extras stay: pip takes name[extra] of a dependency from the newest release, unless that very text is pinned.
compile() {
    CUSTOM_COMPILE_COMMAND="make lock" "$TOOL/bin/pip-compile" \
        --quiet --no-strip-extras --allow-unsafe --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options "$@"
}
compile pyproject.toml --extra dev --output-file "$DEVELOPMENT" "$@"
cp "$DEVELOPMENT" "$RUNTIME" # pip-compile keeps the versions that it finds in its output
compile pyproject.toml --output-file "$RUNTIME"
compile - --output-file "$PIP" "$@" <<<pip

# pip-compile drops the markers of an extra's requirements: without this one, setup would fail where atheris has no wheel.
sed -i "s/^atheris==[^ ]*/& ; platform_machine == 'x86_64' and python_version < '3.14'/" "$DEVELOPMENT"
