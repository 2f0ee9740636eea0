#!/usr/bin/env bash
# Everything that must hold before a change lands.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/lint.sh
bash scripts/test.sh
