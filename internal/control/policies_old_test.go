package control_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestWhatAPolicyIsRefusedFor(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	for _, tt := range []struct {
		name  string
		spoil func(*belfry.Spec)
		field string
		says  string
	}{
		{"a missed window with a typing error", func(s *belfry.Spec) { s.MissedWindow = "run_al" }, "missed_window", `did you mean "run_all"?`},
		{"a missed window of another kind", func(s *belfry.Spec) { s.MissedWindow = "x" }, "missed_window", `must be "skip", "run_once" or "run_all"`},
		{"fewer than none missed", func(s *belfry.Spec) { s.MaxMissed = -1 }, "max_missed", "from 1 to 1000"},
		{"too many missed", func(s *belfry.Spec) { s.MaxMissed = 1001 }, "max_missed", "from 1 to 1000"},
		{"a window that ends before it begins", func(s *belfry.Spec) { s.CatchUpSeconds = -1 }, "catch_up_window_seconds", "from 1 to"},
		{"a window of a lifetime", func(s *belfry.Spec) { s.CatchUpSeconds = 60 * 366 * 24 * 60 * 60 }, "catch_up_window_seconds", "from 1 to"},
		{"a priority beyond the highest", func(s *belfry.Spec) { s.Priority = "10" }, "priority", "from 0 to 9"},
		{"a priority of another kind", func(s *belfry.Spec) { s.Priority = "urgent" }, "priority", `"high", "normal" or "low"`},
		{"an overlap with a typing error", func(s *belfry.Spec) { s.Overlap = "paralel" }, "overlap", `did you mean "parallel"?`},
		{"a queue for fewer than none", func(s *belfry.Spec) { s.MaxQueued = -1 }, "max_queued", "from 1 to 10000"},
		{"a queue without an end", func(s *belfry.Spec) { s.MaxQueued = 10_001 }, "max_queued", "from 1 to 10000"},
		{"a backoff with a typing error", func(s *belfry.Spec) { s.RetryBackoff = "exponentiel" }, "retry_backoff", `did you mean "exponential"?`},
		{"a list without delays", func(s *belfry.Spec) { s.RetryBackoff = "list" }, "retry_delays", "for example [10, 60, 600]"},
		{"delays with another backoff", func(s *belfry.Spec) { s.RetryBackoff, s.RetryDelays = "fixed", "1,2" }, "retry_delays", `not with "fixed"`},
		{"a delay that is too long", func(s *belfry.Spec) { s.RetryDelays = "1,604801" }, "retry_delays", "604800"},
		{"retries on something else", func(s *belfry.Spec) { s.RetryOn = "server_error" }, "retry_on", `did you mean "server_errors"?`},
		{"a cap below the base, in a line", func(s *belfry.Spec) { s.RetryBackoff, s.RetryCapSeconds = "linear", 1 }, "retry_cap_seconds", "at least"},
		{"history of fewer than no days", func(s *belfry.Spec) { s.RetentionDays = -1 }, "retention_days", "from 1 to 36500"},
		{"history for ever", func(s *belfry.Spec) { s.RetentionDays = 36_501 }, "retention_days", "from 1 to 36500"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := controltest.Input("@daily")
			tt.spoil(&d.Spec)
			_, err := c.Create(t.Context(), ns, d, none)
			oneError(t, err, tt.field, tt.says)
		})
	}
}

func TestAllFaultsOfAPolicyAreToldAtOnce(t *testing.T) {
	d := controltest.Input("@daily")
	d.MissedWindow, d.MaxMissed, d.CatchUpSeconds, d.Priority = "x", -1, -1, "x"
	d.Overlap, d.MaxQueued, d.RetentionDays, d.RetryOn, d.RetryDelays = "x", -1, -1, "x", "-1"
	var fields []string
	for _, f := range control.New(controltest.Open(t), plan.Defaults{}).Check(d) {
		fields = append(fields, f.Field)
	}
	want := []string{"missed_window", "max_missed", "catch_up_window_seconds", "priority", "overlap", "max_queued", "retention_days", "retry_on", "retry_delays"}
	if !slices.Equal(fields, want) {
		t.Errorf("got  %v\nwant %v", fields, want)
	}
}

func TestTheFormInWhichAPolicyIsStored(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	for _, tt := range []struct {
		name string
		bend func(*belfry.Spec)
		want func(*belfry.Spec)
	}{
		{"any case", func(s *belfry.Spec) {
			s.MissedWindow, s.Overlap, s.Priority, s.RetryBackoff = " RUN_ALL ", "Queue", "HIGH", "Linear"
		},
			func(s *belfry.Spec) {
				s.MissedWindow, s.Overlap, s.Priority, s.RetryBackoff = belfry.MissedRunAll, belfry.OverlapQueue, belfry.PriorityHigh, belfry.BackoffLinear
			}},
		{"a priority as a number", func(s *belfry.Spec) { s.Priority = "9" }, func(s *belfry.Spec) { s.Priority = belfry.PriorityHigh }},
		{"the normal priority by name", func(s *belfry.Spec) { s.Priority = "Normal" }, func(s *belfry.Spec) { s.Priority = belfry.PriorityNormal }},
		{"delays make a list", func(s *belfry.Spec) { s.RetryDelays = "1,2.50" }, func(s *belfry.Spec) { s.RetryDelays, s.RetryBackoff = "1,2.5", belfry.BackoffList }},
		{"a list has no cap", func(s *belfry.Spec) { s.RetryDelays, s.RetryCapSeconds = "3600", 1 }, func(s *belfry.Spec) {
			s.RetryDelays, s.RetryBackoff, s.RetryCapSeconds = "3600", belfry.BackoffList, 1
		}},
		{"at once has no cap", func(s *belfry.Spec) { s.RetryBackoff, s.RetryCapSeconds = "immediate", 1 }, func(s *belfry.Spec) {
			s.RetryBackoff, s.RetryCapSeconds = belfry.BackoffImmediate, 1
		}},
		{"all failures", func(s *belfry.Spec) { s.RetryOn = "ALL" }, func(s *belfry.Spec) { s.RetryOn = belfry.RetryOnAll }},
		{"some failures", func(s *belfry.Spec) { s.RetryOn = "Server_Errors" }, func(s *belfry.Spec) { s.RetryOn = belfry.RetryOnServerErrors }},
		{"the most of everything", func(s *belfry.Spec) {
			s.MaxMissed, s.CatchUpSeconds, s.MaxQueued, s.RetentionDays = 1000, 10*365*24*60*60, 10_000, 36_500
		},
			func(s *belfry.Spec) {
				s.MaxMissed, s.CatchUpSeconds, s.MaxQueued, s.RetentionDays = 1000, 10*365*24*60*60, 10_000, 36_500
			}},
	} {
		d := controltest.Input("@daily")
		tt.bend(&d.Spec)
		job, err := c.Create(t.Context(), ns, d, none)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		want := controltest.Input("@daily").Spec
		want.Timezone = "UTC"
		if tt.want(&want); job.Spec != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, job.Spec, want)
		}
		found, err := c.Get(t.Context(), ns, job.ID.String())
		if err != nil {
			t.Fatal(err)
		}
		same(t, found, job)
	}
}

func TestDelaysAndBackoffFollowEachOtherInAnEdit(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	for _, tt := range []struct {
		name    string
		from    func(*belfry.Spec)
		edit    func(*belfry.Spec)
		backoff belfry.Backoff
		delays  belfry.Delays
	}{
		{"another backoff drops the list", func(s *belfry.Spec) { s.RetryDelays = "1,2" }, func(s *belfry.Spec) { s.RetryBackoff = "FIXED" }, "fixed", ""},
		{"the usual backoff drops the list", func(s *belfry.Spec) { s.RetryDelays = "1,2" }, func(s *belfry.Spec) { s.RetryBackoff = "exponential" }, "exponential", ""},
		{"the same backoff keeps the list", func(s *belfry.Spec) { s.RetryDelays = "1,2" }, func(s *belfry.Spec) { s.RetryBackoff = "List" }, "list", "1,2"},
		{"a list replaces another backoff", func(s *belfry.Spec) { s.RetryBackoff = "fixed" }, func(s *belfry.Spec) { s.RetryDelays = "3" }, "list", "3"},
		{"no list is the usual backoff", func(s *belfry.Spec) { s.RetryDelays = "1,2" }, func(s *belfry.Spec) { s.RetryDelays = "" }, "exponential", ""},
		{"something else changes neither", func(s *belfry.Spec) { s.RetryDelays = "1,2" }, func(s *belfry.Spec) { s.MaxRetries = belfry.Some(7) }, "list", "1,2"},
	} {
		d := controltest.Input("@daily")
		tt.from(&d.Spec)
		job := controltest.Create(t, c, d)
		after, err := c.Edit(t.Context(), ns, job.ID.String(), "", func(m *belfry.Manifest) []belfry.FieldError {
			tt.edit(&d.Spec)
			return nil
		})
		if err != nil || after.RetryBackoff != tt.backoff || after.RetryDelays != tt.delays {
			t.Errorf("%s: %q %q, error %v", tt.name, after.RetryBackoff, after.RetryDelays, err)
		}
	}
}

// Without a dst_gap of its own, a job that does not make up for missed windows does
// not for skipped wall times either: that is another rule.
func TestAnotherMissedWindowMayBeAnotherRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The bubble begins on 1 January 2000; the clock is set forward on 26 March.
		c := control.New(controltest.Open(t), plan.Defaults{})
		d := controltest.Input("30 2 * * *")
		d.Timezone = "Europe/Paris"
		time.Sleep(time.Until(time.Date(2000, 3, 25, 12, 0, 0, 0, time.UTC)))
		job := controltest.Create(t, c, d)
		for _, tt := range []struct {
			missed belfry.MissedWindow
			gap    belfry.DSTGap
			want   string
		}{
			{belfry.MissedRunOnce, "", "03-26 03:00"},
			{belfry.MissedSkip, "", "03-27 02:30"},
			{belfry.MissedSkip, belfry.GapRun, "03-26 03:00"},
			{belfry.MissedRunAll, "", "03-26 03:00"},
			{belfry.MissedRunAll, belfry.GapSkip, "03-27 02:30"},
			{belfry.MissedSkip, belfry.GapSkip, "03-27 02:30"},
		} {
			after := controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.MissedWindow, m.DSTGap = tt.missed, tt.gap })
			paris, err := time.LoadLocation("Europe/Paris")
			if err != nil {
				t.Fatal(err)
			}
			if after.NextRunAt == nil || after.NextRunAt.In(paris).Format("01-02 15:04") != tt.want {
				t.Errorf("%s %q: next run at %v, want %s", tt.missed, tt.gap, after.NextRunAt, tt.want)
			}
		}
	})
}

func TestAnotherRetryPolicyIsNoOtherRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		job := controltest.Create(t, c, controltest.Input("PT1H"))
		before := controltest.PlanOf(t, s, job.ID)
		time.Sleep(90 * time.Minute)
		after := controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) {
			d.RetryDelays, d.RetryOn, d.Priority, d.MaxQueued = "1,2", "server_errors", "high", 3
			d.MissedWindow, d.MaxMissed, d.CatchUpSeconds, d.RetentionDays = "run_all", 5, 60, 7
		})
		left := controltest.PlanOf(t, s, job.ID)
		if after.Revision != 2 || !left.NominalAt.Equal(before.NominalAt) || !left.NextAt.Equal(before.NextAt) {
			t.Errorf("revision %d, plan %+v, before %+v", after.Revision, left, before)
		}
	})
}

func TestWhatAServerSaysHoldsForItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			window time.Duration
			want   string
		}{
			{0, "60 paused x2, 180 ready"},
			{30 * time.Minute, "60 paused x3"},
		} {
			s := controltest.Open(t)
			c := control.New(s, plan.Defaults{CatchUpWindow: tt.window})
			d := controltest.Input("PT1H")
			d.Paused = true
			job := controltest.Create(t, c, d)
			start := job.CreatedAt.Truncate(time.Second)
			time.Sleep(3*time.Hour + 45*time.Minute)
			if _, err := c.Resume(t.Context(), ns, job.ID.String(), belfry.Resume{CatchUp: true}); err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(controltest.History(t, c, job.ID, start), " r1", ""); got != tt.want {
				t.Errorf("window %s: got %q, want %q", tt.window, got, tt.want)
			}
		}
	})
}
