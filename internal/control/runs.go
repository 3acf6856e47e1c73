package control

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/explain"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
)

// Run finds a run, live or settled, with the attempts that failed and a note on clock
// changes.
func (c *Control) Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error) {
	run, err := c.read.Run(ctx, namespace, id)
	if err != nil {
		return belfry.Run{}, err
	}
	run.Note = explain.Note(ctx, c.read, c.defaults, run)
	run.IdempotencyKey = run.Key()
	return run, nil
}

// JobRuns returns the runs and skips of a job, latest occurrence first, without their
// attempts.
func (c *Control) JobRuns(ctx context.Context, namespace, ref string, p store.Page) ([]belfry.Run, store.Position, error) {
	job, err := c.job(ctx, namespace, ref)
	if err != nil {
		return nil, store.Position{}, err
	}
	runs, err := c.read.JobRuns(ctx, namespace, job.ID, store.Page{After: p.After, Limit: p.Limit + 1})
	runs, next := cutPage(runs, p.Limit, func(r belfry.Run) store.Position { return store.Position{At: r.ScheduledAt, ID: r.ID} })
	return withKeys(runs), next, err
}

// ListRuns returns the runs and skips of all jobs, latest first, without their
// attempts. A page may be short, or empty, and still be followed by others.
func (c *Control) ListRuns(ctx context.Context, namespace string, f belfry.RunFilter, p store.Page) ([]belfry.Run, store.Position, error) {
	list, err := retryRead(ctx, "list runs", func() (store.RunList, error) {
		return c.store.ListRuns(ctx, namespace, f, p)
	})
	return withKeys(list.Runs), store.Position{ID: list.Next}, err
}

// withKeys fills in the idempotency keys of runs.
func withKeys(runs []belfry.Run) []belfry.Run {
	for i := range runs {
		runs[i].IdempotencyKey = runs[i].Key()
	}
	return runs
}

// CancelRun ends a run and returns it: one that no worker holds is cancelled at once; a
// running one ends when its worker has stopped it. A run that is settled in any other
// way is a Conflict.
func (c *Control) CancelRun(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error) {
	err := retryUnknown(ctx, "cancel a run", func() error { return c.store.Cancel(ctx, namespace, id) })
	if err != nil {
		return belfry.Run{}, err
	}
	return c.Run(ctx, namespace, id)
}

// ListEvents returns the events of a namespace, latest first.
func (c *Control) ListEvents(ctx context.Context, namespace string, p store.Page) ([]belfry.Event, store.Position, error) {
	events, err := retryRead(ctx, "list events", func() ([]belfry.Event, error) {
		return c.store.ListEvents(ctx, namespace, store.Page{After: p.After, Limit: p.Limit + 1})
	})
	events, next := cutPage(events, p.Limit, func(e belfry.Event) store.Position { return store.Position{At: e.At, ID: e.ID} })
	return events, next, err
}

// Explain says what was decided for an instant of a job and why, or what is planned; see
// explain.Explain. The instant is written as in RFC 3339, or as a wall time in the time
// zone of the job; empty means the latest.
func (c *Control) Explain(ctx context.Context, namespace, ref, at string) (belfry.Explanation, error) {
	job, err := c.job(ctx, namespace, ref)
	if err != nil {
		return belfry.Explanation{}, err
	}
	instant, err := parseInstant(at, job.Timezone)
	if err != nil {
		return belfry.Explanation{}, invalid("the instant is not valid", []belfry.FieldError{{Field: "at", Message: err.Error()}})
	}
	e, err := explain.Explain(ctx, c.read, c.defaults, job, instant, c.now())
	if e.Run != nil {
		e.Run.IdempotencyKey = e.Run.Key()
	}
	return e, err
}

// parseInstant reads an instant, or a wall time in a time zone: for one that the clock
// shows twice it is the first instant, for one that it skips the end of the gap, as for
// a one-off. The error follows the name of a field.
func parseInstant(text, zone string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range [...]string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		wall, err := time.Parse(form, text)
		if err != nil {
			continue
		}
		if err := schema.CheckYear(wall); err != nil {
			return time.Time{}, err
		}
		if rule, err := schedule.Parse(wall.Format("2006-01-02T15:04:05"), schedule.Options{Timezone: zone}); err == nil {
			if at, once := schedule.Once(rule); once {
				return at, nil
			}
		}
		return time.Time{}, fmt.Errorf("cannot be used as a wall time in %s; use an instant with an offset or Z", zone)
	}
	at, err := schema.ParseTime(strings.Replace(text, " ", "+", 1)) // a plus sign that was not encoded
	if err == schema.ErrNoTime {
		return time.Time{}, fmt.Errorf(`must be an instant such as "2027-03-01T09:00:00Z", or a wall time in the time zone of the job such as "2027-03-01 09:00"`)
	}
	return at, err
}
