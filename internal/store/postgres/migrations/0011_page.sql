-- What each node did in a minute, for the page. A node replaces its own rows.
CREATE TABLE belfry.activity (
    namespace text NOT NULL,
    minute    timestamptz NOT NULL,
    node      uuid NOT NULL,
    counts    text NOT NULL, -- JSON list
    PRIMARY KEY (namespace, minute, node)
);
CREATE INDEX activity_minute ON belfry.activity (minute);

-- People who are logged in to the page, by the hash of their cookie.
CREATE TABLE belfry.sessions (
    id       bytea PRIMARY KEY,
    key_hash bytea NOT NULL, -- of the API key that they have
    seen_at  timestamptz NOT NULL
);
