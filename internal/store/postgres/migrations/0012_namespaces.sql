-- Namespaces that somebody has declared, and what they may use. Others have no row, and no limits.
CREATE TABLE belfry.namespaces (
    name       text PRIMARY KEY,
    quota      text NOT NULL, -- JSON
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    limited_at timestamptz NOT NULL, -- since when jobs are counted; until all nodes know that, they are counted again each time
    jobs       bigint NOT NULL DEFAULT -1, -- never less than it has, or -1: not known
    bytes      bigint NOT NULL DEFAULT -1
);
