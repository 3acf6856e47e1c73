-- When: a plan's runs_made counts scheduled runs only, which a job may limit.
-- Beside it stands how many runs were asked for, so that both together still tell
-- how many there ever were. Plans from before have counted these as made.
ALTER TABLE belfry.plans ADD COLUMN runs_asked bigint NOT NULL DEFAULT 0;
