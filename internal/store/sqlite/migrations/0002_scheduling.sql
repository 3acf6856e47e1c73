-- A lease that was renewed in the future was renewed before the clock was set back.
ALTER TABLE leases ADD COLUMN renewed_at INTEGER NOT NULL DEFAULT 0;

ALTER TABLE workers ADD COLUMN since INTEGER NOT NULL DEFAULT 0; -- since when its heartbeats have come without a gap
ALTER TABLE workers ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0; -- of its last heartbeat
