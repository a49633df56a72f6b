-- What was sent of users. See README.md beside this file.

-- A row is named by a 128-bit hash of its content, its person by one of their id: nobody is named here.
CREATE TABLE pushes (
    content          BLOB PRIMARY KEY CHECK (length(content) = 16),
    person           BLOB NOT NULL CHECK (length(person) = 16),
    -- The service's answer: 0 none is known, 1 accepted, 2 refused.
    fate             INTEGER NOT NULL,
    status           INTEGER,
    -- An intent without an outcome: it may be at the service. And whether its events are with it.
    in_flight        INTEGER NOT NULL,
    in_flight_events INTEGER NOT NULL,
    -- How often it was sent without knowing what became of it, and whether events were among that.
    unknown_sends    INTEGER NOT NULL,
    unknown_events   INTEGER NOT NULL,
    -- Place among all intents.
    ordinal          INTEGER NOT NULL,
    sent_ms          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX pushes_by_person ON pushes (person, ordinal);
