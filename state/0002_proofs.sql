-- How each stretch was last read, and since when it is proven complete. See README.md beside this file.

-- Of the scans that read the stretch last: the real time of the earliest (scanned_ms stands back where a doubt is left), the latest
-- scan, how many there were, their pages, and how the service ended them (bits: null 1, missing 2, empty text 4, 404 8).
ALTER TABLE coverage ADD COLUMN read_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE coverage ADD COLUMN scan_id TEXT;
ALTER TABLE coverage ADD COLUMN scans INTEGER NOT NULL DEFAULT 0;
ALTER TABLE coverage ADD COLUMN pages INTEGER NOT NULL DEFAULT 0;
ALTER TABLE coverage ADD COLUMN ends INTEGER NOT NULL DEFAULT 0;
UPDATE coverage SET read_ms = scanned_ms;

-- Since when a stretch is proven complete: disjoint within a scope, laid down by the first scan and then left alone. Neighbours
-- that were first proven on one day are one row.
CREATE TABLE proofs (
    stream    TEXT NOT NULL,
    survey_id INTEGER NOT NULL,
    start_ms  INTEGER NOT NULL,
    end_ms    INTEGER NOT NULL CHECK (end_ms > start_ms),
    proven_ms INTEGER NOT NULL,
    PRIMARY KEY (stream, survey_id, start_ms)
) STRICT, WITHOUT ROWID;

-- What is known of older coverage: it was complete by its last scan at the latest.
INSERT INTO proofs SELECT stream, survey_id, start_ms, end_ms, scanned_ms FROM coverage;
