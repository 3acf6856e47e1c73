-- API keys, of which only hashes are kept. Keys that have ended stay: keys are required since there was one.
CREATE TABLE api_keys (
    id         BLOB PRIMARY KEY,
    key_id     TEXT NOT NULL UNIQUE,
    hash       BLOB NOT NULL, -- of the secret
    spec       TEXT NOT NULL, -- JSON
    changed_at INTEGER NOT NULL,
    used_at    INTEGER
) STRICT;
CREATE INDEX api_keys_changed ON api_keys (changed_at);
