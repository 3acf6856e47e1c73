-- Named secrets. Values are encrypted.
CREATE TABLE secrets (
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    value          TEXT NOT NULL,
    previous       TEXT, -- the value before it, as long as it is valid
    previous_until INTEGER,
    allowed_hosts  TEXT NOT NULL, -- separated by blanks
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT;

-- Keys that encrypt the secrets of a namespace, encrypted with a key that is not in the database.
CREATE TABLE data_keys (
    namespace  TEXT NOT NULL,
    version    INTEGER NOT NULL,
    key_id     TEXT NOT NULL, -- of the key that encrypts it
    wrapped    TEXT NOT NULL, -- base64
    created_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, version)
) STRICT;
