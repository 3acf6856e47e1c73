package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

// Maintenance is the database as a whole, for those who own all of it or a namespace.
type Maintenance interface {
	// JobNamespaces lists the namespaces that have jobs, in order. Deleted and archived jobs
	// do not count.
	JobNamespaces(ctx context.Context) ([]string, error)

	// PurgeNamespace removes the jobs of a namespace at once with all that belongs to
	// them: plans, live runs, history, dead letters. Schedulers and workers that know them
	// find out by themselves. If the database has nothing else, it is empty afterwards,
	// also on disk.
	PurgeNamespace(ctx context.Context, namespace string) error

	// Usage says what the tables of jobs and plans occupy.
	Usage(ctx context.Context) (Usage, error)
}

// Usage is what tables occupy, as far as the database knows.
type Usage struct {
	Bytes     int64 // jobs and plans with their indexes; on SQLite the whole file
	DeadPlans int64 // dead tuples of plans that are not vacuumed yet, about; none on SQLite
	DeadRuns  int64 // the same of live runs
}

// Statistics is numbers about the database, for metrics.
type Statistics interface {
	// Stats counts what the database holds. It is cheap however much that is: large
	// numbers are estimates.
	Stats(ctx context.Context) (Stats, error)

	// Running counts the running attempts by worker, at most MaxRunningCounted.
	Running(ctx context.Context) (map[belfry.ID]int, error)

	// Database says which database it is.
	Database(ctx context.Context) (Database, error)

	// Pools says how the connections of this process are used.
	Pools() []PoolStats
}

// Database is what a store keeps everything in.
type Database struct {
	Kind    string // postgresql or sqlite
	Version string
	Bytes   int64 // on disk
}

// Stats is what a database holds at one moment. Lanes stand for a queue and the type of
// its jobs, see belfry.LaneType: those of several handlers may be one.
type Stats struct {
	Due       map[string]int // due plans that are not fired, by lane, at most about MaxDueCounted
	OldestDue time.Time      // when the first of them was due; zero: none is

	Dead    map[string]int    // dead letters by lane; above MaxDeadCounted an estimate
	Running map[belfry.ID]int // running attempts by worker, at most MaxRunningCounted

	HistoryRows   int64     // of the history, an estimate
	HistoryBytes  int64     // of the history with its indexes; on SQLite of everything
	OldestHistory time.Time // the day of the oldest partition of the history, or its oldest row; zero: none
}

// What Stats counts and looks at.
const (
	MaxDueCounted     = 100_000
	MaxDueSampled     = 5000 // of these, whose jobs are looked up
	MaxDeadCounted    = 10_000
	MaxRunningCounted = 100_000
)

// PoolStats is how a pool of connections is used.
type PoolStats struct {
	Name             string
	Max, InUse, Idle int
	Waited           time.Duration // by all calls so far, for a connection
}

// Scale multiplies the counts of a sample so that they add up to about the total.
func Scale(sample map[string]int, total int) {
	sum := 0
	for _, n := range sample {
		sum += n
	}
	if sum == 0 || total <= sum {
		return
	}
	for lane, n := range sample {
		sample[lane] = int(float64(n) * float64(total) / float64(sum))
	}
}

// PerShard divides a limit among shards.
func PerShard(limit, shards int) int { return (limit + shards - 1) / shards }

// TraceLinkRetention is how long the context of a request is kept. Servers of traces keep
// them for days or weeks.
const TraceLinkRetention = 30 * 24 * time.Hour

// TraceLinks is the trace contexts of the requests that created jobs and triggered runs.
// It is empty unless nodes export traces.
type TraceLinks interface {
	// AddTraceLinks keeps a traceparent for jobs that are about to be created, or for runs
	// that are about to be triggered, by their ids.
	AddTraceLinks(ctx context.Context, ids []belfry.ID, traceparent string) error

	// TraceLinks returns what is kept for some of the ids.
	TraceLinks(ctx context.Context, ids []belfry.ID) (map[belfry.ID]string, error)
}

// Activities is what nodes do, minute by minute.
type Activities interface {
	// PutActivity records what a node did in some minutes, in place of what it recorded of
	// them before.
	PutActivity(ctx context.Context, node belfry.ID, list []Activity) error

	// Activity returns what the nodes did in a namespace since an instant, by minute: those
	// in which nothing happened are left out.
	Activity(ctx context.Context, namespace string, since time.Time) ([]Activity, error)
}

// Sessions is who is logged in to the page.
type Sessions interface {
	// AddSession records that somebody has logged in.
	AddSession(ctx context.Context, s Session) error

	// Session returns a session that was used within SessionTimeout, which counts as its use;
	// NotFound if there is none.
	Session(ctx context.Context, id Hash) (Session, error)

	// EndSession ends a session, if there is one.
	EndSession(ctx context.Context, id Hash) error
}

// Activity is what happened in a minute.
type Activity struct {
	Minute    time.Time
	Namespace string
	Counts    ActivityCounts
}

// ActivityCounts are numbers of attempts: those that started, by how long they waited, and
// those that ended.
type ActivityCounts [countLag + 13]int64

// What the counts are.
const (
	CountSucceeded = iota
	CountFailed    // attempts after which the run is tried again
	CountDead
	countLag // the first of the buckets of LagLimits, and one for what is above
)

// LagLimits are the upper limits of the buckets of lag.
var LagLimits = [...]time.Duration{
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute,
}

// AddLag counts an attempt that started so long after it could.
func (c *ActivityCounts) AddLag(lag time.Duration) {
	i := 0
	for i < len(LagLimits) && lag > LagLimits[i] {
		i++
	}
	c[countLag+i]++
}

// Add adds other counts.
func (c *ActivityCounts) Add(other ActivityCounts) {
	for i := range other {
		c[i] += other[i]
	}
}

// Started is how many attempts started.
func (c *ActivityCounts) Started() (n int64) {
	for _, count := range c[countLag:] {
		n += count
	}
	return n
}

// Lag is an upper limit of the lag of a share of the attempts; zero if it is above all limits,
// or if there are none.
func (c *ActivityCounts) Lag(share float64) time.Duration {
	need, seen := share*float64(c.Started()), int64(0)
	for i, limit := range LagLimits {
		if seen += c[countLag+i]; seen > 0 && float64(seen) >= need {
			return limit
		}
	}
	return 0
}

// MergeActivity adds what one node did in a minute to a list that is in order.
func MergeActivity(list []Activity, namespace string, minute time.Time, counts []int64) []Activity {
	if len(list) == 0 || !list[len(list)-1].Minute.Equal(minute) {
		list = append(list, Activity{Minute: minute, Namespace: namespace})
	}
	var add ActivityCounts
	copy(add[:], counts) // another version may count less or more
	list[len(list)-1].Counts.Add(add)
	return list
}

// ActivityRetention is how long activity is kept.
const ActivityRetention = 24 * time.Hour

// RunTime is when a run was, and how it ended.
type RunTime struct {
	JobID, RunID          belfry.ID
	Status                belfry.RunStatus
	ScheduledAt           time.Time
	StartedAt, FinishedAt *time.Time
	Skipped               int64 // how many occurrences a skip stands for
}

// Hash is the SHA-256 of something that is not stored.
type Hash [32]byte

// Session is somebody who has logged in with an API key.
type Session struct {
	ID     Hash   // of the cookie
	Key    Hash   // of the API key
	Person string // who has no key, as JSON; empty: who has the key
}

// ErrNoSession is that there is no such session, or that it has ended.
var ErrNoSession = belfry.Errorf(belfry.NotFound, "there is no such session")

// SessionTimeout is after how long without use a session ends.
const SessionTimeout = 12 * time.Hour

// SessionTouch is how old the recorded use of a session may be.
const SessionTouch = time.Minute
