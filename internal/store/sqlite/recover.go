package sqlite

import (
	"context"
	"strings"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/belfry-sh/belfry"
)

const (
	selectTime = `SELECT CAST(value AS INTEGER) FROM settings WHERE name = ?`
	setTime    = `INSERT INTO settings (name, value) VALUES (?1, CAST(?2 AS TEXT)) ON CONFLICT (name) DO UPDATE SET value = excluded.value`

	selectLastSeen = `SELECT max(last_seen) FROM workers WHERE instr(lanes, ':') = 0`
)

// releaseBatch bounds the transactions in which Open releases runs.
const releaseBatch = 1000

// recover releases what an earlier process held. The lock on the directory proves that
// it is gone, and its worker and leases with it. Workers of users are other processes
// and may be alive: their lanes are those of belfry.NamespaceLane, and they are reaped only if they stay silent.
func (s *Store) recover(ctx context.Context) error {
	err := s.write(ctx, "release the leases", func(t *tx) error {
		if err := s.recoverTimes(t); err != nil {
			return err
		}
		if err := t.run(`DELETE FROM workers WHERE instr(lanes, ':') = 0`); err != nil {
			return err
		}
		return t.run(`UPDATE leases SET expires_at = ? WHERE expires_at > ?`, micro(t.now), micro(t.now))
	})
	for released := releaseBatch; err == nil && released == releaseBatch; {
		err = s.write(ctx, "release the runs", func(t *tx) error {
			runs, err := all(t, scanHeld, selectHeld+`WHERE r.state = 'running' AND (instr(r.lane, ':') = 0 OR instr(r.lane, '::') > 0) LIMIT ?`, releaseBatch)
			if err != nil {
				return err
			}
			released = len(runs)
			return t.settleAll(runs, belfry.OutcomeLost, "the node stopped")
		})
	}
	return err
}

// recoverTimes finds out when the earlier process stopped. One that was killed may have
// lived until its worker's next heartbeat was due.
func (s *Store) recoverTimes(t *tx) error {
	var openedAt, stoppedAt, seenAt time.Time
	if _, err := t.find([]any{timeColumn{&openedAt}}, selectTime, "opened_at"); err != nil {
		return err
	}
	if _, err := t.find([]any{timeColumn{&stoppedAt}}, selectTime, "stopped_at"); err != nil {
		return err
	}
	if err := t.get([]any{timeColumn{&seenAt}}, selectLastSeen); err != nil {
		return err
	}
	if seenAt.Before(openedAt) {
		seenAt = openedAt
	}
	s.unclean = !openedAt.IsZero() && stoppedAt.IsZero()
	if s.downSince = stoppedAt; stoppedAt.Before(seenAt) {
		s.downSince = seenAt.Add(belfry.HeartbeatInterval)
	}
	if s.downSince.After(t.now) {
		s.downSince = t.now
	}
	if err := t.run(setTime, "opened_at", micro(t.now)); err != nil {
		return err
	}
	return t.run(`DELETE FROM settings WHERE name = 'stopped_at'`)
}

// DownSince is when the process that used the database before stopped; zero: there was
// none.
func (s *Store) DownSince() time.Time { return s.downSince }

// checkIntegrity looks for damage to the database file after a process that was killed or
// a machine that lost power. Meanwhile the store is used: SQLite survives both on a disk
// that keeps its promises, and to read a large file takes minutes.
func (s *Store) checkIntegrity(ctx context.Context) {
	var found []string
	err := s.read(ctx, "check the database", func(t *tx) (err error) {
		found, err = all(t, scanInto(func(line *string) []any { return []any{line} }), `PRAGMA quick_check(10)`)
		return err
	})
	switch {
	case ctx.Err() != nil:
	case err != nil && errorCode(err)&0xff != codes.SQLITE_CORRUPT:
		s.log.Warn("the database could not be checked after an unclean stop", "error", err)
	case err != nil || len(found) != 1 || found[0] != "ok":
		damage := "the database file is damaged: stop Belfry and restore a backup"
		s.damage.Store(&damage)
		s.log.Error(damage, "check", strings.Join(found, "; "), "error", err)
	}
}
