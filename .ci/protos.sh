#!/usr/bin/env bash
# Generates the message modules from protos/. With --check: says whether they are what protos/ gives.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t protos < <(cd protos && find . -name '*.proto' -printf '%P\n' | LC_ALL=C sort)
generate() { .venv/bin/python -m grpc_tools.protoc -I protos --python_out="$1" --pyi_out="$1" "${protos[@]}"; }

if [[ ${1:-} != --check ]]; then
    generate .
    exit
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
generate "$fresh"
status=0
while IFS= read -r file; do
    cmp "$fresh/$file" "$file" || status=1
done < <(cd "$fresh" && find . -type f -printf '%P\n' | LC_ALL=C sort)
if ((status)); then
    echo "generated modules differ from protos/: run make protos" >&2
else
    echo "generated modules are up to date"
fi
exit "$status"
