-- People who have logged in with OpenID Connect have no key.
ALTER TABLE sessions ADD COLUMN person TEXT NOT NULL DEFAULT ''; -- JSON, or empty: who has the key
