package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestRunsInPages(t *testing.T) {
	controltest.Run(t, "latest first", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.Overlap = belfry.OverlapParallel })
		sc.FireAt("09:00", "09:05", "09:10")
		all := sc.Runs(job)
		page := store.Page{Limit: 1}
		for i := range all {
			runs, next, err := sc.Control.JobRuns(sc.Context(), ns, job.ID.String(), belfry.JobRunFilter{}, page)
			if err != nil || len(runs) != 1 || runs[0].ID != all[i].ID || (next == store.Position{}) != (i == 2) {
				sc.Fatalf("page %d is %+v, then %v, error %v", i, runs, next, err)
			}
			if r := runs[0]; r.IdempotencyKey == "" || r.IdempotencyKey != sc.Run(r.ID).IdempotencyKey {
				sc.Errorf("the keys are %q and %q", r.IdempotencyKey, sc.Run(r.ID).IdempotencyKey)
			}
			page.After = next
		}
	})
}

func TestLargeCatchUpEvent(t *testing.T) {
	controltest.Run(t, "once", func(sc *controltest.Scenario) {
		job := sc.Create("* * * * *", func(s *belfry.Spec) { s.MissedWindow = "run_all" })
		sc.FireAt("09:20:30")
		events, next, err := sc.Control.ListEvents(sc.Context(), ns, belfry.EventFilter{}, store.Page{Limit: 1})
		if err != nil || len(events) != 1 || events[0].Kind != belfry.EventLargeCatchUp || events[0].JobID != job.ID || events[0].Count != 22 || next != (store.Position{}) {
			sc.Errorf("got %+v, then %v, error %v", events, next, err)
		}
		if events, _, err := sc.Control.ListEvents(sc.Context(), "elsewhere", belfry.EventFilter{}, store.Page{Limit: 10}); err != nil || len(events) != 0 {
			sc.Errorf("elsewhere: %+v, error %v", events, err)
		}
	})
}

func TestExplainAtAnInstantOrWallTime(t *testing.T) {
	controltest.Run(t, "in the time zone of the job", func(sc *controltest.Scenario) {
		job := sc.Create("30 2 * * *")
		for at, want := range map[string]string{
			"":                          "2000-01-04T01:30:00Z",
			"2000-01-05T01:30:00Z":      "2000-01-05T01:30:00Z",
			"2000-01-05T02:30:00+01:00": "2000-01-05T01:30:00Z",
			"2000-01-05T02:30:00 01:00": "2000-01-05T01:30:00Z", // a plus sign that was not encoded
			"2000-01-05 02:30":          "2000-01-05T01:30:00Z",
			"2000-01-05T02:30:00":       "2000-01-05T01:30:00Z",
			"2000-03-26 02:30:00":       "2000-03-26T01:00:00Z", // the clock skips it
			"2000-10-29T02:30":          "2000-10-29T00:30:00Z", // the clock shows it twice
		} {
			e, err := sc.Control.Explain(sc.Context(), ns, job.ID.String(), at)
			if err != nil || e.At.Format(time.RFC3339) != want || e.Decision != belfry.DecisionPlanned {
				sc.Errorf("%q: %v %s, want %s, error %v", at, e.At, e.Decision, want, err)
			}
		}
		for at, words := range map[string]string{
			"yesterday":            `or a wall time in the time zone of the job`,
			"1969-12-31T23:59:59Z": "1970",
			"2500-01-01 00:00":     "2499",
			"2400-01-01 00:00":     "use an instant with an offset", // time zones are known until 2262
		} {
			_, err := sc.Control.Explain(sc.Context(), ns, job.ID.String(), at)
			oneError(sc.T, err, "at", words)
		}
		_, err := sc.Control.Explain(sc.Context(), ns, belfry.NewID(time.Now()).String(), "")
		codeOf(sc.T, err, belfry.NotFound)
		_, err = sc.Control.Explain(sc.Context(), "elsewhere", job.ID.String(), "")
		codeOf(sc.T, err, belfry.NotFound)
	})
}

func TestExplanationOfARunHasItsIdempotencyKey(t *testing.T) {
	controltest.Run(t, "as lists have it", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *")
		sc.FireAt("09:00")
		e, err := sc.Control.Explain(sc.Context(), ns, job.ID.String(), "2000-01-03 09:00")
		if err != nil || e.Run == nil || e.Run.IdempotencyKey != sc.Runs(job)[0].IdempotencyKey || e.Run.IdempotencyKey == "" {
			sc.Errorf("got %+v, error %v", e.Run, err)
		}
	})
}

func TestPreview(t *testing.T) {
	c := newControl(t)
	p, err := c.Preview(t.Context(), belfry.PreviewRequest{Schedule: "0 9 * * *", Count: 2})
	if err != nil || len(p.Next) != 2 || p.Timezone != "UTC" {
		t.Errorf("got %+v, error %v", p, err)
	}
	_, err = c.Preview(t.Context(), belfry.PreviewRequest{Schedule: "0 25 * * *"})
	oneError(t, err, "schedule", "column 3")
}

func TestTheHistoryOfADeletedJob(t *testing.T) {
	controltest.Run(t, "by its id", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *")
		sc.FireAt("09:00")
		sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
		never := sc.Create("0 12 * * *")
		sc.SleepUntil("09:01:00")
		for _, job := range []belfry.Job{job, never} {
			sc.OK(sc.Control.Delete(sc.Context(), ns, job.ID.String(), "", control.DeleteOptions{}))
		}
		for range 2 { // before and after it is archived
			runs, _, err := sc.Control.ListRuns(sc.Context(), ns, belfry.RunFilter{Job: job.ID.String()}, store.Page{Limit: 10})
			if err != nil || len(runs) != 1 || runs[0].Status != belfry.RunSucceeded {
				sc.Errorf("the runs are %+v, error %v", runs, err)
			}
			if shown, err := sc.Control.JobHistory(sc.Context(), ns, job.ID.String()); err != nil || shown.Status != belfry.StatusDeleted || shown.Schedule != job.Schedule {
				sc.Errorf("the job is %+v, error %v", shown, err)
			}
			for at, want := range map[string]string{"": "2000-01-03 09:00 +01:00 ran: it succeeded", "2000-01-03 09:05": "not run: the job was deleted at 09:01"} {
				if e, err := sc.Control.Explain(sc.Context(), ns, job.ID.String(), at); err != nil || !strings.Contains(e.Sentence, want) {
					sc.Errorf("%q: %q, error %v", at, e.Sentence, err)
				}
			}
			_, err = sc.Control.Get(sc.Context(), ns, job.ID.String())
			codeOf(sc.T, err, belfry.NotFound)
			for _, ref := range []struct{ namespace, job string }{{"elsewhere", job.ID.String()}, {ns, never.ID.String()}} {
				_, _, err = sc.Control.JobRuns(sc.Context(), ref.namespace, ref.job, belfry.JobRunFilter{}, store.Page{Limit: 1})
				codeOf(sc.T, err, belfry.NotFound)
			}
			sc.SleepUntil("2000-01-04 12:00")
			_, err = sc.Store.Prune(sc.Context(), 30*24*time.Hour)
			sc.OK(err)
		}
	})
}
