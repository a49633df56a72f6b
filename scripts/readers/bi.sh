#!/usr/bin/env bash
# Reads a DuckDB file as BI tools do: with the SQLAlchemy dialect of Superset, and with Evidence's
# connector. A reader that cannot be installed is skipped, with a message.
# Usage: bi.sh FILE (the copy that `publish` names, or the warehouse)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
file=$(realpath "$1")
kept=${STUDYSYNC_READERS:-$HOME/.cache/studysync-readers}

# Superset 6 is built on SQLAlchemy 1.4; with 2.1 this dialect cannot list columns.
superset=(duckdb-engine==0.17.0 duckdb==1.5.6 sqlalchemy==1.4.54)
evidence=@evidence-dev/duckdb@2.0.1

python=$kept/superset/bin/python
if [ "$(cat "$kept/superset/packages" 2>/dev/null)" != "${superset[*]}" ]; then
    rm -rf "$kept/superset"
    if python3 -m venv "$kept/superset" && timeout 300 "$kept/superset/bin/pip" install --quiet --disable-pip-version-check "${superset[@]}"; then
        echo "${superset[*]}" >"$kept/superset/packages"
    fi
fi
if [ -f "$kept/superset/packages" ]; then
    "$python" "$here/superset.py" "$file"
else
    echo "SKIPPED Superset's dialect: its packages cannot be had from here" >&2
fi

if [ "$(cat "$kept/evidence/packages" 2>/dev/null)" != "$evidence" ]; then
    rm -rf "$kept/evidence"
    mkdir -p "$kept/evidence"
    if command -v npm >/dev/null && timeout 300 npm install --silent --no-audit --no-fund --prefix "$kept/evidence" "$evidence" >/dev/null 2>&1; then
        echo "$evidence" >"$kept/evidence/packages"
    fi
fi
if [ -f "$kept/evidence/packages" ]; then
    NODE_PATH=$kept/evidence/node_modules node "$here/evidence.cjs" "$file"
else
    echo "SKIPPED Evidence's connector: npm or the package cannot be had from here" >&2
fi
