package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
)

func TestBackfillErrors(t *testing.T) {
	controltest.Run(t, "with all that is wrong", func(sc *controltest.Scenario) {
		job := sc.Create("0 * * * *")
		for _, tt := range []struct {
			name         string
			of           belfry.Backfill
			field, words string
		}{
			{"the future", belfry.Backfill{From: sc.At("09:00")}, "from", "it is 2000-01-03T07:58:30Z now"},
			{"to before from", belfry.Backfill{From: sc.At("08:00"), To: sc.At("07:59")}, "to", "must not be before from"},
		} {
			for _, dry := range []bool{false, true} {
				tt.of.DryRun = dry
				_, err := sc.Control.Backfill(sc.Context(), ns, job.ID.String(), tt.of, none)
				if oneError(sc.T, err, tt.field, tt.words); sc.Failed() {
					sc.Fatal(tt.name)
				}
			}
		}
		once := sc.Create("2000-01-03T09:00")
		_, err := sc.Control.Backfill(sc.Context(), ns, once.ID.String(), belfry.Backfill{From: sc.At("08:00")}, none)
		codeOf(sc.T, err, belfry.Conflict)
		_, err = sc.Control.Backfill(sc.Context(), ns, belfry.NewID(time.Now()).String(), belfry.Backfill{From: sc.At("08:00")}, none)
		codeOf(sc.T, err, belfry.NotFound)
	})
}

func TestBackfillInstants(t *testing.T) {
	for _, tt := range []struct {
		name     string
		schedule string
		of       func(sc *controltest.Scenario) belfry.Backfill
		want     []string
		next     string
	}{
		{"both ends count", "0 * * * *", func(sc *controltest.Scenario) belfry.Backfill {
			return belfry.Backfill{From: sc.At("05:00"), To: sc.At("07:00")}
		},
			[]string{"05:00", "06:00", "07:00"}, ""},
		{"until now", "0 * * * *", func(sc *controltest.Scenario) belfry.Backfill { return belfry.Backfill{From: sc.At("06:00:01")} }, []string{"07:00", "08:00"}, ""},
		{"never the future", "0 * * * *", func(sc *controltest.Scenario) belfry.Backfill {
			return belfry.Backfill{From: sc.At("07:30"), To: sc.At("12:00")}
		}, []string{"08:00"}, ""},
		{"so many and no more", "0 * * * *", func(sc *controltest.Scenario) belfry.Backfill { return belfry.Backfill{From: sc.At("00:30"), Limit: 2} }, []string{"01:00", "02:00"}, "03:00"},
		{"exactly so many", "0 * * * *", func(sc *controltest.Scenario) belfry.Backfill {
			return belfry.Backfill{From: sc.At("00:30"), To: sc.At("02:59"), Limit: 2}
		}, []string{"01:00", "02:00"}, ""},
		{"none", "0 12 * * *", func(sc *controltest.Scenario) belfry.Backfill { return belfry.Backfill{From: sc.At("00:30")} }, nil, ""},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			job := sc.Create(tt.schedule)
			of := tt.of(sc)
			of.DryRun = true
			dry, err := sc.Control.Backfill(sc.Context(), ns, job.ID.String(), of, key("k", "a"))
			sc.OK(err)
			if pending, err := sc.Store.PendingTriggers(sc.Context(), controltest.Shards, nil, 10); err != nil || len(pending) != 0 || dry.RunIDs != nil {
				sc.Errorf("a dry run made %d pending and %d runs, error %v", len(pending), len(dry.RunIDs), err)
			}
			of.DryRun = false
			done, err := sc.Control.Backfill(sc.Context(), ns, job.ID.String(), of, key("k", "a"))
			sc.OK(err)
			for _, out := range []belfry.BackfillResult{dry, done} {
				var got []string
				for _, at := range out.Instants {
					got = append(got, at.In(controltest.Paris).Format("15:04"))
				}
				next := ""
				if !out.NextFrom.IsZero() {
					next = out.NextFrom.In(controltest.Paris).Format("15:04")
				}
				if !slices.Equal(got, tt.want) || next != tt.next || out.More != (tt.next != "") || out.Instants == nil || out.Count != len(out.Instants) {
					sc.Errorf("got %v and more %v from %q, want %v and %q", got, out.More, next, tt.want, tt.next)
				}
			}
			if len(done.RunIDs) != len(tt.want) {
				sc.Errorf("there are %d runs", len(done.RunIDs))
			}
		})
	}
}

func TestBackfillRuns(t *testing.T) {
	controltest.Run(t, "one after another, and never mixed up with others", func(sc *controltest.Scenario) {
		job := sc.Create("0 * * * *")
		sc.FireAt("09:00")
		sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
		sc.SleepUntil("09:01")
		of := belfry.Backfill{From: sc.At("07:00")}
		done, err := sc.Control.Backfill(sc.Context(), ns, job.ID.String(), of, key("k", "a"))
		sc.OK(err)
		again, err := sc.Control.Backfill(sc.Context(), ns, job.ID.String(), of, key("k", "a"))
		if err != nil || !slices.Equal(again.RunIDs, done.RunIDs) || !slices.EqualFunc(again.Instants, done.Instants, time.Time.Equal) {
			sc.Errorf("the same key gave %+v, error %v", again, err)
		}
		_, err = sc.Control.Backfill(sc.Context(), ns, job.ID.String(), of, key("k", "b"))
		oneError(sc.T, err, "Idempotency-Key", "another request")
		sc.Fire()
		for i, id := range done.RunIDs {
			run := sc.Claim(1)[0]
			if run.ID != id || run.Kind != belfry.KindBackfill || !run.ScheduledAt.Equal(done.Instants[i]) {
				sc.Errorf("got the run %s of kind %s for %s, want %s", run.ID, run.Kind, run.ScheduledAt, id)
			}
			sc.Finish(run, belfry.OutcomeSucceeded)
		}
		if runs := sc.Runs(job); len(runs) != 4 {
			sc.Errorf("there are %d runs", len(runs))
		}
		other, err := sc.Control.Backfill(sc.Context(), ns, job.ID.String(), of, none)
		if err != nil || slices.Contains(other.RunIDs, done.RunIDs[0]) {
			sc.Errorf("another backfill gave %+v, error %v", other, err)
		}
	})
}
