-- People who have logged in with OpenID Connect have no key.
ALTER TABLE belfry.sessions ADD COLUMN person text NOT NULL DEFAULT ''; -- JSON, or empty: who has the key
