package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

func TestWhatABackfillIsRefusedFor(t *testing.T) {
	staged(t, "with all that is wrong", func(g *stage) {
		job := g.every("0 * * * *")
		for _, tt := range []struct {
			name        string
			of          control.Backfill
			field, says string
		}{
			{"no beginning", control.Backfill{}, "from", "is missing; for example"},
			{"the future", control.Backfill{From: g.at("09:00")}, "from", "it is 2000-01-03T07:58:30Z now"},
			{"the wrong order", control.Backfill{From: g.at("08:00"), To: g.at("07:59")}, "to", "before from"},
			{"long ago", control.Backfill{From: time.Unix(-1, 0)}, "from", "1970"},
			{"too many", control.Backfill{From: g.at("08:00"), Limit: 1001}, "limit", "1 to 1000"},
			{"fewer than none", control.Backfill{From: g.at("08:00"), Limit: -1}, "limit", "1 to 1000"},
		} {
			for _, dry := range []bool{false, true} {
				tt.of.DryRun = dry
				_, err := g.c.Backfill(g.Context(), ns, job.ID, tt.of, none)
				if oneFault(g.T, err, tt.field, tt.says); g.Failed() {
					g.Fatal(tt.name)
				}
			}
		}
		once := g.every("2000-01-03T09:00")
		_, err := g.c.Backfill(g.Context(), ns, once.ID, control.Backfill{From: g.at("08:00")}, none)
		codeOf(g.T, err, belfry.Conflict)
		_, err = g.c.Backfill(g.Context(), ns, belfry.NewID(time.Now()), control.Backfill{From: g.at("08:00")}, none)
		codeOf(g.T, err, belfry.NotFound)
	})
}

func TestTheInstantsOfABackfill(t *testing.T) {
	for _, tt := range []struct {
		name     string
		schedule string
		of       func(g *stage) control.Backfill
		want     []string
		next     string
	}{
		{"both ends count", "0 * * * *", func(g *stage) control.Backfill { return control.Backfill{From: g.at("05:00"), To: g.at("07:00")} },
			[]string{"05:00", "06:00", "07:00"}, ""},
		{"until now", "0 * * * *", func(g *stage) control.Backfill { return control.Backfill{From: g.at("06:00:01")} }, []string{"07:00", "08:00"}, ""},
		{"never the future", "0 * * * *", func(g *stage) control.Backfill { return control.Backfill{From: g.at("07:30"), To: g.at("12:00")} }, []string{"08:00"}, ""},
		{"so many and no more", "0 * * * *", func(g *stage) control.Backfill { return control.Backfill{From: g.at("00:30"), Limit: 2} }, []string{"01:00", "02:00"}, "03:00"},
		{"exactly so many", "0 * * * *", func(g *stage) control.Backfill {
			return control.Backfill{From: g.at("00:30"), To: g.at("02:59"), Limit: 2}
		}, []string{"01:00", "02:00"}, ""},
		{"none", "0 12 * * *", func(g *stage) control.Backfill { return control.Backfill{From: g.at("00:30")} }, nil, ""},
	} {
		staged(t, tt.name, func(g *stage) {
			job := g.every(tt.schedule)
			of := tt.of(g)
			of.DryRun = true
			dry, err := g.c.Backfill(g.Context(), ns, job.ID, of, key("k", "a"))
			g.ok(err)
			if wishes, err := g.s.Triggers(g.Context(), shards, 10); err != nil || len(wishes) != 0 || dry.Runs != nil {
				g.Errorf("a dry run made %d wishes and %d runs, error %v", len(wishes), len(dry.Runs), err)
			}
			of.DryRun = false
			done, err := g.c.Backfill(g.Context(), ns, job.ID, of, key("k", "a"))
			g.ok(err)
			for _, out := range []control.Backfilled{dry, done} {
				var got []string
				for _, at := range out.Instants {
					got = append(got, at.In(paris).Format("15:04"))
				}
				next := ""
				if !out.NextFrom.IsZero() {
					next = out.NextFrom.In(paris).Format("15:04")
				}
				if !slices.Equal(got, tt.want) || next != tt.next || out.More != (tt.next != "") || out.Instants == nil {
					g.Errorf("got %v and more %v from %q, want %v and %q", got, out.More, next, tt.want, tt.next)
				}
			}
			if len(done.Runs) != len(tt.want) {
				g.Errorf("there are %d runs", len(done.Runs))
			}
		})
	}
}

func TestABackfillIsARunOfItsOwnKind(t *testing.T) {
	staged(t, "one after another, and never mixed up with others", func(g *stage) {
		job := g.every("0 * * * *")
		g.fired("09:00")
		g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
		g.until("09:01")
		of := control.Backfill{From: g.at("07:00")}
		done, err := g.c.Backfill(g.Context(), ns, job.ID, of, key("k", "a"))
		g.ok(err)
		again, err := g.c.Backfill(g.Context(), ns, job.ID, of, key("k", "a"))
		if err != nil || !slices.Equal(again.Runs, done.Runs) || !slices.EqualFunc(again.Instants, done.Instants, time.Time.Equal) {
			g.Errorf("the same key gave %+v, error %v", again, err)
		}
		_, err = g.c.Backfill(g.Context(), ns, job.ID, of, key("k", "b"))
		oneFault(g.T, err, "Idempotency-Key", "another request")
		fire(g.T, g.s)
		for i, id := range done.Runs {
			run := g.claim(1)[0]
			if run.ID != id || run.Kind != belfry.KindBackfill || !run.ScheduledAt.Equal(done.Instants[i]) {
				g.Errorf("got the run %s of kind %s for %s, want %s", run.ID, run.Kind, run.ScheduledAt, id)
			}
			g.finish(run, belfry.OutcomeSucceeded)
		}
		if runs := g.runs(job); len(runs) != 4 {
			g.Errorf("there are %d runs", len(runs))
		}
		other, err := g.c.Backfill(g.Context(), ns, job.ID, of, none)
		if err != nil || slices.Contains(other.Runs, done.Runs[0]) {
			g.Errorf("another backfill gave %+v, error %v", other, err)
		}
	})
}
