-- What webhooks since the last run held that no contract knows, until a run reports it: one JSON list.
CREATE TABLE drift (id INTEGER PRIMARY KEY CHECK (id = 1), entries TEXT NOT NULL) STRICT;
