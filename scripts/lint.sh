#!/usr/bin/env bash
# Format, lint, types, imports and generated documentation, each as a check that changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/venv.sh .venv test,dev,data
bin=.venv/bin
echo "format" && "$bin/ruff" format --check --quiet .
echo "lint" && "$bin/ruff" check --quiet .
echo "types" && "$bin/mypy" --no-error-summary
echo "imports" && "$bin/lint-imports" --no-logo
echo "documentation" && "$bin/python" scripts/generate_docs.py --check
