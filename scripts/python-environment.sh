# Sourced by scripts that need Python packages, or Java for Spark. Expects `kept`, the folder of environments, which
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

java_installed() { # Installs a Java runtime as root on Debian, if there is none.
    command -v java >/dev/null && return
    apt-get install -y -qq default-jre-headless >/dev/null || { apt-get update -qq && apt-get install -y -qq default-jre-headless; } >/dev/null
}
