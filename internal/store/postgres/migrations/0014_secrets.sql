-- Named secrets. Values are encrypted.
CREATE TABLE belfry.secrets (
    namespace      text NOT NULL,
    name           text NOT NULL,
    value          text NOT NULL,
    previous       text, -- the value before it, as long as it is valid
    previous_until timestamptz,
    allowed_hosts  text NOT NULL, -- separated by blanks
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- Keys that encrypt the secrets of a namespace, encrypted with a key that is not in the database.
CREATE TABLE belfry.data_keys (
    namespace  text NOT NULL,
    version    integer NOT NULL,
    key_id     text NOT NULL, -- of the key that encrypts it
    wrapped    text NOT NULL, -- base64
    created_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, version)
);
