# Sourced by scripts that need Python packages. Expects `kept`, the folder in which environments stay between runs.

installed() { # NAME PACKAGES...: a Python environment with these packages, made once
    local at=$kept/$1
    shift
    if [ "$(cat "$at/packages" 2>/dev/null)" != "$*" ]; then
        rm -rf "$at"
        python3 -m venv "$at"
        "$at/bin/pip" install --quiet --disable-pip-version-check "$@"
        echo "$*" >"$at/packages"
    fi
}
