# Sourced by scripts that need Python packages. Expects `kept`, the folder of environments, which
# stays between runs.

installed() { # NAME PACKAGES...: makes a Python environment with these packages once
    local at=$kept/$1
    shift
    if [ "$(cat "$at/packages" 2>/dev/null)" != "$*" ]; then
        rm -rf "$at"
        python3 -m venv "$at"
        "$at/bin/pip" install --quiet --disable-pip-version-check "$@" || return 1
        echo "$*" >"$at/packages"
    fi
}
