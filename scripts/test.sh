#!/usr/bin/env bash
# Runs the tests in .venv; arguments go to pytest. Parity tests run where torch is installed there.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/venv.sh .venv test,dev,data
exec .venv/bin/python -m pytest -q -n "${MESHWRIGHT_TEST_WORKERS:-2}" --dist loadfile "$@"
