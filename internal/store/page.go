package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

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
