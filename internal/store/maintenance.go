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
