// Package postgres keeps everything in PostgreSQL, version 15 or newer, in a
// schema named belfry. It works through a pooler in transaction mode: no session
// state, no advisory session lock; LISTEN only shortens the wait for a poll.
package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// Time limits of one call. The server cancels a statement that takes longer, so that
// no loop of a scheduler hangs.
const (
	statementTimeout = 10 * time.Second
	fireTimeout      = 5 * time.Second // of calls that hold up a scheduler or a worker
	callTimeout      = 15 * time.Second
	bulkTimeout      = 10 * time.Minute
)

// Options are the settings of a store.
type Options struct {
	URL         string
	Shards      int // of a new database; 0: the stored number, or 64
	Connections int // that the node may open; 0: pool_max_conns of the URL, or DefaultConnections
	Log         *slog.Logger
	Metrics     *metrics.Metrics // nil: nothing is measured
}

// Store is a store.Store in PostgreSQL: the interfaces say what its methods do.
type Store struct {
	sqlstore.Store
	*notifier
	pool          *pool
	firePool      *pool // for Fire, see orMain; nil: the node may open few connections
	finishPool    *pool // for Finish, likewise
	readPool      *pool // reads of the API, so that many of them delay nothing else
	priorityPool  *pool // heartbeats, leases, the clock and Reap never wait behind other work
	behindPooler  bool  // connections go through a pooler in transaction mode
	log           *slog.Logger
	metrics       *metrics.Metrics
	shards        int
	clock         atomic.Pointer[clockSample]
	clockWatch    store.ClockWatch
	writeFailure  atomic.Pointer[writeFailure] // why the server takes no writes; nil: it does
	plansLockedAt atomic.Int64                 // when a fire last waited for a locked plan in vain, in Unix seconds
	specs         store.Specs
	trigrams      shareCache
	waitingScan   struct { // where the next scan of jobs with waiting runs starts
		sync.Mutex
		after belfry.ID
		at    time.Time // when the last one was
	}
	pruneScan pruneScan
	stop      context.CancelFunc
	done      sync.WaitGroup
}

// clockSample is the server's clock at an instant of the local one. Time since then is
// measured by the monotonic clock, so that setting the local wall clock changes nothing.
type clockSample struct{ server, local time.Time }

var _ store.Store = (*Store)(nil)

// Open connects, migrates the schema and fixes the number of shards.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := inspect(ctx, o.URL)
	if err != nil {
		return nil, err
	}
	if err := c.migrate(ctx); err != nil {
		return nil, err
	}
	c.warnAboutTLS(o.Log)
	s := &Store{log: o.Log, metrics: o.Metrics, pruneScan: pruneScan{next: map[string]int64{}, done: map[string]bool{}}}
	s.Store = sqlstore.Store{DB: s, Specs: &s.specs, ScanLimit: runScanLimit, SearchTime: searchTime, Quotas: new(sqlstore.Quotas)}
	if err := s.connect(ctx, c, o.Connections); err != nil {
		return nil, err
	}
	if s.behindPooler {
		o.Log.Info("the database is behind a pooler in transaction mode; notifications between nodes are replaced by polling")
		if err := s.warnAboutSettings(ctx); err != nil {
			s.closePools()
			return nil, err
		}
	}
	if s.shards, err = store.InitShards(o.Shards, func(shards string) (string, error) { return s.SetOnce(ctx, "shards", shards) }); err != nil {
		s.closePools()
		return nil, err
	}
	if err := s.syncClock(ctx); err != nil {
		s.closePools()
		return nil, fmt.Errorf("read the database's clock: %w", err)
	}
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.notifier = &notifier{pool: s.priorityPool, log: o.Log, node: belfry.NewToken().String(), wake: make(chan struct{}, 1)}
	s.done.Go(func() { s.syncClockLoop(background) })
	s.done.Go(func() { s.notifier.send(background) })
	if !s.behindPooler {
		s.done.Go(func() { s.notifier.listen(background, s.pool.Config().ConnConfig) })
	}
	return s, nil
}

func (s *Store) Shards() int { return s.shards }

// ClusterID identifies the cluster of all nodes on this database. It is made when it is first
// asked for.
func (s *Store) ClusterID(ctx context.Context) (string, error) {
	return s.SetOnce(ctx, "cluster", belfry.NewID(time.Now()).String())
}

// Now is the server's time, as of the last synchronization of clocks.
func (s *Store) Now() time.Time {
	c := s.clock.Load()
	return c.server.Add(time.Since(c.local)).UTC().Truncate(time.Microsecond)
}

// Ping checks that the server answers and accepts writes.
func (s *Store) Ping(ctx context.Context) error {
	var standby, readOnly bool
	err := s.priorityPool.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'`).Scan(&standby, &readOnly)
	switch refused := s.writeFailure.Load(); {
	case err != nil:
		return belfry.Errorf(belfry.Unavailable, "the database cannot be reached: %w", err)
	case standby:
		return belfry.Errorf(belfry.Unavailable, "the database is a read-only standby")
	case readOnly:
		return belfry.Errorf(belfry.Unavailable, "the database takes no writes: it is read-only")
	case refused != nil && time.Since(refused.at) < writeFailureLasts:
		return belfry.Errorf(belfry.Unavailable, "the database takes no writes: %s", refused.why)
	}
	return nil
}

// writeFailureLasts is for how long one refused write counts. While a node is alive it writes
// its leases or heartbeats more often than that.
const writeFailureLasts = 30 * time.Second

func (s *Store) Close() error {
	s.stop()
	s.done.Wait()
	s.closePools()
	return nil
}

func (s *Store) syncClockLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
		if err := s.syncClock(ctx); err != nil && ctx.Err() == nil {
			s.log.Debug("the database's clock could not be read", "error", err)
		}
	}
}

// syncClock samples the server's clock in the middle of the fastest of three round
// trips.
func (s *Store) syncClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	best := time.Duration(1<<63 - 1)
	var sample clockSample
	for range 3 {
		var server time.Time
		start := time.Now()
		if err := s.priorityPool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&server); err != nil {
			return err
		}
		if trip := time.Since(start); trip < best {
			best, sample = trip, clockSample{server: server, local: start.Add(trip / 2)}
		}
	}
	if step := s.clockWatch.Observe(sample.server, sample.local); step != 0 {
		s.log.Warn("the database's clock was set", "by", step.Round(time.Millisecond))
	}
	s.clock.Store(&sample)
	return nil
}

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is an advisory lock that a migration holds for its transaction.
const migrationLock = 0x62656c667279

// migrateTimeout bounds how long a migration waits for the locks that it needs.
const migrateTimeout = 10 * time.Minute

// Migrate brings the schema up to date, one process at a time. It refuses a schema that
// is newer than this program.
func Migrate(ctx context.Context, url string) error {
	c, err := inspect(ctx, url)
	if err != nil {
		return err
	}
	return c.migrate(ctx)
}

// Versions returns the version of the schema of a database, 0 if there is none, and the
// scripts that bring it up to date.
func Versions(ctx context.Context, url string) (stored int, missing []string, err error) {
	c, err := inspect(ctx, url)
	if err != nil {
		return 0, nil, err
	}
	conn, err := c.open(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if stored, err = storedVersion(ctx, conn); err != nil {
		return 0, nil, wrapError("read the version of the schema", err)
	}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	return stored, files[min(stored, len(files)):], err
}

func storedVersion(ctx context.Context, q querier) (version int, err error) {
	var exists bool
	if err := q.QueryRow(ctx, `SELECT to_regclass('belfry.migrations') IS NOT NULL`).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = q.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM belfry.migrations`).Scan(&version)
	return version, err
}

// migrate leaves a schema that is up to date alone: then a role that may not change it is
// enough.
func (c *connection) migrate(ctx context.Context) error {
	conn, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	stored, err := storedVersion(ctx, conn)
	if files, _ := fs.Glob(migrations, "migrations/*.sql"); err == nil && stored == len(files) {
		return wrapError("make partitions", makePartitions(ctx, conn, time.Now()))
	}
	for started := time.Now(); ; {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return migrate(ctx, tx, migrations) })
		if sqlState(err) != lockNotAvailable || time.Since(started) > migrateTimeout {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second): // others go on meanwhile
		}
	}
	if sqlState(err) == insufficientPrivilege {
		return belfry.Errorf(belfry.Invalid, "the schema of the database has version %d and is not that of this program, and the role %q may not change it (%s): run belfry migrate as a role that may", stored, c.config.ConnConfig.User, connectFailure(err))
	}
	if err != nil {
		return wrapError("migrate the database", err)
	}
	return wrapError("make partitions", makePartitions(ctx, conn, time.Now()))
}

// migrate gives up if a lock is not available soon, since all others wait behind it.
func migrate(ctx context.Context, tx pgx.Tx, files fs.FS) error {
	for _, sql := range []string{
		`SELECT set_config('lock_timeout', '200ms', true)`,
		`SELECT set_config('statement_timeout', '0', true)`, // an index on a large table takes long
		fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d)`, migrationLock),
		`CREATE SCHEMA IF NOT EXISTS belfry`,
		`CREATE TABLE IF NOT EXISTS belfry.migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)`,
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	current, err := storedVersion(ctx, tx)
	if err != nil {
		return err
	}
	return store.Migrate(files, current, func(version int, script string) error {
		if _, err := tx.Conn().PgConn().Exec(ctx, script).ReadAll(); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO belfry.migrations (version, applied_at) VALUES ($1, clock_timestamp())`, version)
		return err
	})
}

// Hold takes or renews each name unless another owner holds it. It is not detached: an
// owner that stopped waiting must not believe in a lease, and a lease that is taken
// without its owner's knowledge expires.
func (s *Store) Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) ([]store.Lease, error) {
	leases, err := collect(ctx, s.priorityPool, scanInto(func(l *store.Lease) []any { return sharedColumns(append(sqlstore.LeaseFields(l), &l.EndedAt)) }), `/* hold */
WITH ended AS MATERIALIZED (SELECT name, expires_at FROM belfry.leases l WHERE name = ANY($2) AND NOT `+sqlstore.LeaseHeld+`)
INSERT INTO belfry.leases AS l (name, owner, epoch, renewed_at, expires_at)
SELECT name, $1, 1, clock_timestamp(), clock_timestamp() + $3 * interval '1 millisecond' FROM (SELECT DISTINCT unnest($2::text[]) AS name) n ORDER BY name
ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, epoch = l.epoch + CASE WHEN l.owner = excluded.owner THEN 0 ELSE 1 END,
       renewed_at = clock_timestamp(), expires_at = clock_timestamp() + $3 * interval '1 millisecond'
 WHERE l.owner = excluded.owner OR NOT `+sqlstore.LeaseHeld+`
RETURNING name, owner, epoch, (SELECT least(ended.expires_at, clock_timestamp()) FROM ended WHERE ended.name = l.name)`, uuid(owner), names, ttl.Milliseconds())
	return leases, wrapError("hold leases", err)
}

func (s *Store) Release(ctx context.Context, owner belfry.ID, names []string) error {
	_, err := s.priorityPool.Exec(ctx, `WITH released AS (UPDATE belfry.leases SET expires_at = clock_timestamp() WHERE owner = $1 AND name = ANY($2))
SELECT pg_notify($3, $4)`, uuid(owner), names, notifyChannel, s.notifier.node+" "+string(store.TopicLeases))
	return wrapError("release leases", err)
}
