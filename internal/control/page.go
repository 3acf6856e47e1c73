package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Now is the time of the store.
func (c *Control) Now() time.Time { return c.now() }

// NamespaceNames lists the namespaces that have jobs or that somebody has declared.
func (c *Control) NamespaceNames(ctx context.Context) ([]string, error) {
	names, err := retryRead(ctx, "list namespaces", func() ([]string, error) { return c.store.JobNamespaces(ctx) })
	if err != nil {
		return nil, err
	}
	declared, err := c.declared(ctx)
	for _, n := range declared {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// Nodes lists the processes of the cluster that were alive in the last day.
func (c *Control) Nodes(ctx context.Context) ([]store.Node, error) {
	return retryRead(ctx, "list nodes", func() ([]store.Node, error) { return c.store.Nodes(ctx) })
}

// Activity is what happened in a namespace since an instant, minute by minute.
func (c *Control) Activity(ctx context.Context, namespace string, since time.Time) ([]store.Activity, error) {
	return retryRead(ctx, "read activity", func() ([]store.Activity, error) { return c.store.Activity(ctx, namespace, since) })
}

// RunTimes returns when the latest runs of jobs were, the latest first.
func (c *Control) RunTimes(ctx context.Context, namespace string, jobs []belfry.ID, since time.Time, limit int) (map[belfry.ID][]store.RunTime, error) {
	times, err := retryRead(ctx, "read the times of runs", func() ([]store.RunTime, error) {
		return c.store.RunTimes(ctx, namespace, jobs, since, limit)
	})
	slices.SortFunc(times, func(a, b store.RunTime) int { return b.ScheduledAt.Compare(a.ScheduledAt) })
	byJob := map[belfry.ID][]store.RunTime{}
	for _, t := range times {
		if len(byJob[t.JobID]) < limit {
			byJob[t.JobID] = append(byJob[t.JobID], t)
		}
	}
	return byJob, err
}

// Depths is how much waits in the whole cluster, and how much is under way.
type Depths struct {
	Waiting   int // due or ready
	Running   int
	OldestDue time.Time
}

// maxDepth is how many ready runs of a handler are counted.
const maxDepth = 10_000

// Depths counts what waits and what runs.
func (c *Control) Depths(ctx context.Context) (d Depths, err error) {
	stats, err := retryRead(ctx, "count runs", func() (store.Stats, error) { return c.store.Stats(ctx) })
	if err != nil {
		return d, err
	}
	ready, err := retryRead(ctx, "count runs", func() (map[string]int, error) { return c.store.CountReady(ctx, maxDepth) })
	d.OldestDue = stats.OldestDue
	for _, n := range stats.Due {
		d.Waiting += n
	}
	for _, n := range ready {
		d.Waiting += n
	}
	for _, n := range stats.Running {
		d.Running += n
	}
	return d, err
}

// CountDead counts dead letters, up to a limit.
func (c *Control) CountDead(ctx context.Context, namespace string, limit int) (int, error) {
	return retryRead(ctx, "count dead letters", func() (int, error) { return c.store.CountDead(ctx, namespace, limit) })
}

// maxUpcoming is how many plans of each shard are read to find those of a namespace.
const maxUpcoming = 200

// Upcoming lists jobs of a namespace by when they run next, until an instant, and where the
// list continues. It reads a bounded number of plans, so that it may be short and go on.
func (c *Control) Upcoming(ctx context.Context, namespace string, until time.Time, p store.Page) (jobs []belfry.Job, next store.Position, err error) {
	window := store.AllUntil(until, allShards(c.store), min(p.Limit+1, maxUpcoming))
	for shard := range window.After {
		window.After[shard] = p.After
	}
	planned, err := retryRead(ctx, "list what is planned", func() ([]store.Planned, error) { return c.store.Upcoming(ctx, window) })
	if err != nil {
		return nil, next, err
	}
	slices.SortFunc(planned, func(a, b store.Planned) int {
		return cmp.Or(a.Plan.NextAt.Compare(b.Plan.NextAt), a.Plan.JobID.Compare(b.Plan.JobID))
	})
	planned, next = cutPage(planned, p.Limit, func(p store.Planned) store.Position { return store.Position{At: p.Plan.NextAt, ID: p.Plan.JobID} })
	ids := make([]belfry.ID, len(planned))
	for i := range planned {
		ids[i] = planned[i].Plan.JobID
	}
	jobs, err = c.jobsOf(ctx, namespace, ids)
	return jobs, next, err
}

func allShards(s store.Sharding) []int {
	shards := make([]int, s.Shards())
	for i := range shards {
		shards[i] = i
	}
	return shards
}

// jobsOf returns those of the jobs that are in a namespace.
func (c *Control) jobsOf(ctx context.Context, namespace string, ids []belfry.ID) (jobs []belfry.Job, err error) {
	for _, id := range ids {
		job, err := c.Get(ctx, namespace, id.String())
		if err == nil {
			jobs = append(jobs, job)
		} else if !isNotFound(err) {
			return nil, err
		}
	}
	return jobs, nil
}

// JobsByName lists the jobs of a namespace that have a name, by name.
func (c *Control) JobsByName(ctx context.Context, namespace string, p store.Page) (jobs []belfry.Job, next store.Position, err error) {
	ids, next, err := readPage(ctx, "list jobs by name", p, func(p store.Page) ([]belfry.ID, error) {
		return c.store.JobsByName(ctx, namespace, p.After.ID, p.Limit)
	},
		func(id belfry.ID) store.Position { return store.Position{ID: id} })
	if err == nil {
		jobs, err = c.jobsOf(ctx, namespace, ids)
	}
	return jobs, next, err
}

// NextRuns lists when a job runs next, in its time zone.
func (c *Control) NextRuns(ctx context.Context, job belfry.Job, count int) (belfry.Preview, error) {
	s := job.Spec
	return c.Preview(ctx, belfry.PreviewRequest{
		Schedule: s.Schedule, Timezone: s.Timezone, DSTGap: gapOf(s), DSTOverlap: s.DSTOverlap, StartsAt: s.StartsAt, EndsAt: s.EndsAt, Count: count, JobID: job.ID,
	})
}

func gapOf(s belfry.Spec) belfry.DSTGap {
	if s.SkipsGap() {
		return belfry.GapSkip
	}
	return belfry.GapRun
}

// Act performs a bulk action on one job.
func (c *Control) Act(ctx context.Context, namespace string, action belfry.Action, job belfry.ID) error {
	if err := requireAction(ctx, action); err != nil {
		return err
	}
	return c.act(ctx, namespace, action, belfry.Job{ID: job}, Key{})
}

// Pulse is a text that differs after something has happened in a namespace: attempts that
// started or ended, and events.
func (c *Control) Pulse(ctx context.Context, namespace string) (string, error) {
	minute := c.now().Truncate(time.Minute)
	list, err := c.store.Activity(ctx, namespace, minute.Add(-time.Minute))
	if err != nil {
		return "", err
	}
	events, err := c.store.ListEvents(ctx, namespace, belfry.EventFilter{}, store.Page{Limit: 1})
	return fmt.Sprint(minute, list, events), err
}

// Changes wakes a reader when jobs were created, edited or triggered, until ctx ends.
func (c *Control) Changes(ctx context.Context) <-chan struct{} {
	return c.store.Wakeups(ctx, store.TopicPlans)
}

// AddSession records that somebody has logged in.
func (c *Control) AddSession(ctx context.Context, s store.Session) error {
	ctx, _ = c.audited(ctx, objectEntry(belfry.AuditLogin, belfry.AuditSession, "", "", ""))
	return retryUnknown(ctx, "record a session", func() error { return c.store.AddSession(ctx, s) })
}

// Session returns a session that has not ended.
func (c *Control) Session(ctx context.Context, id store.Hash) (store.Session, error) {
	return retryRead(ctx, "look up a session", func() (store.Session, error) { return c.store.Session(ctx, id) })
}

// EndSession ends a session.
func (c *Control) EndSession(ctx context.Context, id store.Hash) error {
	ctx, audit := c.audited(ctx, objectEntry(belfry.AuditLogout, belfry.AuditSession, "", "", ""))
	audit.SetWhenDone(func([]belfry.ID) []belfry.AuditEntry { return []belfry.AuditEntry{audit.Entry} })
	return retryUnknown(ctx, "end a session", func() error { return c.store.EndSession(ctx, id) })
}
