# Sourced by scripts that run tests themselves.

build_tests() { # Sets `built` to the tests of the library and of the program, and the program. Builds what `make test` builds.
    mapfile -t built < <(scripts/cargo.sh test --workspace --no-run --message-format=json | python3 -c 'import json, sys
found = {}
for line in sys.stdin:
    made = json.loads(line)
    target = made.get("target", {})
    if made.get("executable") and target["name"] in ("studysync", "tests"):
        found[target["kind"][0], made["profile"]["test"]] = made["executable"]
print(found["lib", True], found["test", True], found["bin", False], sep="\n")')
}
