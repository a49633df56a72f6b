-- What the pages of the last scan of each window come to. See README.md beside this file.

-- A page is known by a 128-bit hash of its list of records; sum and edge hold hashes, too.
CREATE TABLE known_pages (
    stream    TEXT NOT NULL,
    survey_id INTEGER NOT NULL,
    start_ms  INTEGER NOT NULL,
    page      BLOB NOT NULL CHECK (length(page) = 16),
    reader    INTEGER NOT NULL,
    records   INTEGER NOT NULL,
    sum       BLOB NOT NULL CHECK (length(sum) = 16),
    last_ms   INTEGER,
    edge      BLOB NOT NULL CHECK (length(edge) % 24 = 0),
    tie_ms    INTEGER,
    PRIMARY KEY (stream, survey_id, start_ms, page)
) STRICT, WITHOUT ROWID;
