-- API keys, of which only hashes are kept. Keys that have ended stay: keys are required since there was one.
CREATE TABLE belfry.api_keys (
    id         uuid PRIMARY KEY,
    key_id     text NOT NULL UNIQUE,
    hash       bytea NOT NULL, -- of the secret
    spec       text NOT NULL,  -- JSON
    changed_at timestamptz NOT NULL,
    used_at    timestamptz
);
CREATE INDEX api_keys_changed ON belfry.api_keys (changed_at);
