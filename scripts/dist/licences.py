"""Prints the licence and notice files of every crate that is in the program: what these licences ask to hand on with it.

A text that several crates have in the same words is printed once, under all their names.
"""

import re
from collections import defaultdict

from crates import Crate, crates

NAMES = re.compile(r"^(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.I)
DUCKDB = """Copyright 2018-2026 Stichting DuckDB Foundation

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files
(the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge,
publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so,
subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR
ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH
THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def texts_of(crate: Crate) -> list[str]:
    files = [path for path in sorted(crate.folder.rglob("*")) if path.is_file() and NAMES.match(path.name)]
    return [path.read_text(errors="replace").strip() for path in files if path.suffix not in (".rs", ".json", ".toml")]


def main() -> None:
    _, others = crates()
    names, without = defaultdict(list), []
    names[DUCKDB.strip()].append("libduckdb (MIT)")
    for crate in (crate for crate in others if crate.is_in_program and not crate.is_ours):
        title = f"{crate.name} {crate.version} ({crate.licence})"
        texts = texts_of(crate)
        for text in dict.fromkeys(texts):
            names[text].append(title)
        if not texts:
            without.append(f"{title}: {crate.repository or 'no repository is named'}")
    print("studysync is made with the following works. Their licences ask to hand on these texts.\n")
    if without:
        print("These name their licence and carry no text of it:\n")
        print("\n".join(f"  {line}" for line in without) + "\n")
    for text, titles in sorted(names.items(), key=lambda entry: entry[1][0].lower()):
        print("=" * 100)
        print("\n".join(titles) + "\n")
        print(text + "\n")


if __name__ == "__main__":
    main()
