-- What each process did in a minute, for the page. A process replaces its own rows.
CREATE TABLE activity (
    namespace TEXT NOT NULL,
    minute    INTEGER NOT NULL,
    node      BLOB NOT NULL,
    counts    TEXT NOT NULL, -- JSON list
    PRIMARY KEY (namespace, minute, node)
) STRICT;
CREATE INDEX activity_minute ON activity (minute);

-- People who are logged in to the page, by the hash of their cookie.
CREATE TABLE sessions (
    id       BLOB PRIMARY KEY,
    key_hash BLOB NOT NULL, -- of the API key that they have
    seen_at  INTEGER NOT NULL
) STRICT;
