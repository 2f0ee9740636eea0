#!/usr/bin/env bash
# venv.sh FOLDER EXTRAS: a virtual environment with this checkout installed, made when missing or
# when pyproject.toml has changed since.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
extras=$2
stamp="$folder/.installed"
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ] || [ "$(cat "$stamp")" != "$extras" ]; then
    echo "installing meshwright[$extras] into $folder" >&2
    "${PYTHON:-python3}" -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
    echo "$extras" >"$stamp"
fi
