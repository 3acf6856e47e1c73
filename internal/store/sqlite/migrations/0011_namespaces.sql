-- Namespaces that somebody has declared, and what they may use. Others have no row, and no limits.
CREATE TABLE namespaces (
    name       TEXT PRIMARY KEY,
    quota      TEXT NOT NULL, -- JSON
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    limited_at INTEGER NOT NULL, -- since when jobs are counted; until all nodes know that, they are counted again each time
    jobs       INTEGER NOT NULL DEFAULT -1, -- never less than it has, or -1: not known
    bytes      INTEGER NOT NULL DEFAULT -1
) STRICT;
