package control_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
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
			runs, next, err := sc.Control.JobRuns(sc.Context(), ns, job.ID.String(), page)
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
		events, next, err := sc.Control.ListEvents(sc.Context(), ns, store.Page{Limit: 1})
		if err != nil || len(events) != 1 || events[0].Kind != belfry.EventLargeCatchUp || events[0].JobID != job.ID || events[0].Count != 22 || next != (store.Position{}) {
			sc.Errorf("got %+v, then %v, error %v", events, next, err)
		}
		if events, _, err := sc.Control.ListEvents(sc.Context(), "elsewhere", store.Page{Limit: 10}); err != nil || len(events) != 0 {
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
	p, err := c.Preview(belfry.PreviewRequest{Schedule: "0 9 * * *", Count: 2})
	if err != nil || len(p.Next) != 2 || p.Timezone != "UTC" {
		t.Errorf("got %+v, error %v", p, err)
	}
	_, err = c.Preview(belfry.PreviewRequest{Schedule: "0 25 * * *"})
	oneError(t, err, "schedule", "column 3")
}
