package bench

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	pollInterval = 100 * time.Millisecond
	stallTimeout = time.Minute // without another execution nothing more is expected
	historyPage  = 4000

	// clockTolerance is how exactly the clocks of this process and of PostgreSQL are
	// compared.
	clockTolerance = 5 * time.Millisecond
)

// waitUntil waits for an instant by the clock of the store.
func (s *session) waitUntil(ctx context.Context, at time.Time) error {
	at = at.Add(-s.skew)
	begin, total := time.Now(), int(time.Until(at).Seconds())
	for time.Now().Before(at) {
		s.progress("seconds until the jobs are due", int(time.Since(begin).Seconds()), total)
		if err := sleep(ctx, min(pollInterval, time.Until(at))); err != nil {
			return err
		}
	}
	return nil
}

// waitForRuns waits until so many runs were executed, or nothing happens any more.
func (s *session) waitForRuns(ctx context.Context, total int) error {
	done, progressed := -1, time.Now()
	for time.Since(progressed) < stallTimeout {
		n := s.executed.count()
		s.progress("running", n, total)
		if n >= total {
			return nil
		}
		if n != done {
			done, progressed = n, time.Now()
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// history reads the runs of the jobs.
func (s *session) history(ctx context.Context, st store.Store, filter belfry.JobRunFilter) (all []occurrence, err error) {
	for after := (belfry.ID{}); ; {
		s.progress("reading the history", len(all), 0)
		page, err := st.ListRuns(ctx, Namespace, belfry.RunFilter{JobRunFilter: filter}, store.Page{After: store.Position{ID: after}, Limit: historyPage})
		if err != nil {
			return nil, err
		}
		for _, run := range page.Runs {
			all = append(all, newOccurrence(run))
		}
		if after = page.Next; after.IsZero() {
			return all, nil
		}
	}
}

func (s *session) assess(expected int, history []occurrence) Quality {
	ahead := s.skew
	if s.shared != nil {
		ahead += clockTolerance
	}
	return assess(expected, history, s.executed.list, ahead)
}
