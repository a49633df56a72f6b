-- The inbox of `studysync serve`: deliveries of webhooks until every warehouse has them.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

-- What was posted. The row stays for a while after its body is gone, so that a repeat is known.
CREATE TABLE deliveries (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    body_hash        BLOB NOT NULL,
    -- Above 0 where the same bytes told something new: a change of status tells no time.
    occurrence       INTEGER NOT NULL,
    -- What a body without a time is about.
    subject          TEXT,
    received_ms      INTEGER NOT NULL,
    last_received_ms INTEGER NOT NULL,
    times            INTEGER NOT NULL DEFAULT 1,
    body_bytes       INTEGER NOT NULL,
    -- NULL once every warehouse has it.
    body             BLOB,
    UNIQUE (body_hash, occurrence)
) STRICT;
CREATE INDEX deliveries_waiting ON deliveries (id) WHERE body IS NOT NULL;
CREATE INDEX deliveries_subject ON deliveries (subject, id) WHERE subject IS NOT NULL;
CREATE INDEX deliveries_age ON deliveries (last_received_ms);

-- The warehouses that `serve` was started with: a run that lacks one of them leaves the deliveries alone.
CREATE TABLE destinations (name TEXT PRIMARY KEY) STRICT;

-- What the scheduler did and will do; one row.
CREATE TABLE schedule (
    id               INTEGER PRIMARY KEY CHECK (id = 1),
    expression       TEXT NOT NULL,
    -- The last moment of the schedule whose run came to its end.
    done_tick_ms     INTEGER,
    next_ms          INTEGER,
    last_started_ms  INTEGER,
    last_finished_ms INTEGER,
    last_outcome     TEXT,
    pid              INTEGER NOT NULL
) STRICT;
