-- Who was asked for at the service, one by one. See README.md beside this file.

-- The person is a 128-bit hash of their id, so that nobody is named here.
CREATE TABLE people (
    person   BLOB PRIMARY KEY CHECK (length(person) = 16),
    asked_ms INTEGER NOT NULL,
    status   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
