package scheduler

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/store"
)

// After any outage exactly those occurrences run that the policy says, oldest
// first, each with its own instant, and the others are recorded.
func TestCatchUpAfterAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 8 * time.Hour, 40 * 24 * time.Hour} {
		for _, tt := range []struct {
			policy  belfry.MissedWindow
			most    int
			window  time.Duration
			overlap belfry.Overlap
		}{
			{belfry.MissedSkip, 0, 0, belfry.OverlapSkip},
			{belfry.MissedRunOnce, 0, 0, belfry.OverlapSkip},
			{belfry.MissedRunOnce, 0, 30 * time.Second, belfry.OverlapQueue},
			{belfry.MissedRunAll, 0, 0, belfry.OverlapSkip},
			{belfry.MissedRunAll, 3, 0, belfry.OverlapQueue},
			{belfry.MissedRunAll, 7, 365 * 24 * time.Hour, belfry.OverlapSkip},
			{belfry.MissedRunAll, 50, 20 * time.Minute, belfry.OverlapParallel},
		} {
			t.Run(fmt.Sprintf("%s %d %v %s after %v", tt.policy, tt.most, tt.window, tt.overlap, outage), func(t *testing.T) {
				inBubble(t, func(b *bubble) {
					b.handlerTime = 2 * time.Second
					job := b.create("* * * * *", func(s *belfry.Spec) {
						s.MissedWindow, s.MaxMissed, s.CatchUpSeconds, s.Overlap = tt.policy, tt.most, int(tt.window.Seconds()), tt.overlap
					})
					b.sleep(outage + time.Second/2)
					b.start(b.store)
					since := b.store.Now()
					b.sleep(50 * time.Second)
					b.wantCatchUp(job, since, tt.policy, tt.most, tt.window, tt.overlap == belfry.OverlapParallel)
				})
			})
		}
	}
}

func TestMissedOccurrencesAreMeasured(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.metrics = metrics.New()
		b.create("* * * * *", func(s *belfry.Spec) { s.MissedWindow, s.MaxMissed = belfry.MissedRunAll, 3 })
		b.sleep(10*time.Minute + time.Second/2)
		b.start(b.store)
		b.sleep(5 * time.Minute) // on time
		w := httptest.NewRecorder()
		b.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range []string{`belfry_catch_up_runs_total{queue="default",type="http"} 3`, `belfry_missed_occurrences_total{queue="default",type="http"} 7`} {
			if !strings.Contains(w.Body.String(), want+"\n") {
				b.Errorf("the metrics do not have %s", want)
			}
		}
	})
}

// wantCatchUp compares the catch-up runs with those that the policy allows.
func (b *bubble) wantCatchUp(job belfry.ID, since time.Time, policy belfry.MissedWindow, most int, window time.Duration, together bool) {
	b.Helper()
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	var missed []time.Time
	for at := start.Add(time.Minute); at.Before(since); at = at.Add(time.Minute) {
		missed = append(missed, at)
	}
	if policy == belfry.MissedRunAll && window == 0 {
		window = 30 * time.Minute
	}
	if policy == belfry.MissedRunAll && most == 0 {
		most = belfry.DefaultMaxMissed
	}
	if policy == belfry.MissedRunOnce {
		most = 1
	}
	want := slices.DeleteFunc(slices.Clone(missed), func(at time.Time) bool {
		return policy == belfry.MissedSkip || window > 0 && at.Before(since.Add(-window))
	})
	want = want[max(len(want)-most, 0):]
	var ran []time.Time
	for _, call := range b.handled() {
		if call.run.ScheduledAt.Before(since) {
			ran = append(ran, call.run.ScheduledAt)
		}
	}
	if together { // those that start at the same instant are seen in any order
		slices.SortFunc(ran, time.Time.Compare)
	}
	// Runs that follow one after another take 2 s each.
	if n := min(len(want), 24); len(ran) < n || !slices.EqualFunc(ran[:n], want[:n], time.Time.Equal) {
		b.Errorf("ran %v, want %v", ran, want)
	}
	skipped, made := int64(0), 0
	for _, run := range b.runs(job) {
		switch {
		case run.Status == belfry.RunSkipped:
			skipped += run.SkippedCount
		case run.ScheduledAt.Before(since):
			made++
		}
	}
	if made != len(want) || int(skipped) != len(missed)-len(want) {
		b.Errorf("%d runs and %d skips of %d missed, want %d runs", made, skipped, len(missed), len(want))
	}
	events, err := b.store.ListEvents(b.Context(), "default", belfry.EventFilter{}, store.Page{Limit: 10})
	if err != nil || (len(events) == 1) != (len(want) > 10) {
		b.Errorf("%d runs caught up, and there are the events %+v, %v", len(want), events, err)
	}
}
