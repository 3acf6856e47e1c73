package scheduler

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

// A wheel that is too small for the horizon delays nothing: what it drops is read again
// in time. The store is polled so rarely that overdue plans would be found too late.
func TestFullWheelDelaysNothing(t *testing.T) {
	for name, after := range map[string]func(i int) time.Duration{
		"spread":             func(i int) time.Duration { return time.Duration(1+i) * time.Second },
		"backwards":          func(i int) time.Duration { return time.Duration(200-i) * time.Second },
		"at one instant":     func(int) time.Duration { return 100 * time.Second },
		"at a few instants":  func(i int) time.Duration { return time.Duration(1+i%4) * 40 * time.Second },
		"within one instant": func(i int) time.Duration { return 30*time.Second + time.Duration(i)*time.Microsecond },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				const jobs = 150
				b.maxPlans, b.slots = 10, 2*jobs
				start := b.store.Now()
				for i := range jobs / 2 {
					b.create(start.Add(after(i)).Format(time.RFC3339Nano), nil)
				}
				b.start(b.store)
				b.sleep(500 * time.Millisecond)
				for i := jobs / 2; i < jobs; i++ { // notifications name them
					b.create(start.Add(after(i)).Format(time.RFC3339Nano), nil)
				}
				for elapsed := time.Duration(0); elapsed < 201*time.Second; elapsed += 500 * time.Millisecond {
					b.sleep(500 * time.Millisecond)
					soonDue := 0
					for i := range jobs {
						if d := start.Add(after(i)).Sub(b.store.Now()); d >= 0 && d <= soon {
							soonDue++
						}
					}
					if n := int(b.scheduler.planned.Load()); n > b.maxPlans+soonDue {
						b.Errorf("after %v there are %d plans in a wheel for %d, with %d that are due soon", elapsed, n, b.maxPlans, soonDue)
					}
				}
				calls := b.handled()
				for _, c := range calls {
					if late := c.at.Sub(c.run.ScheduledAt); late < 0 || late > 100*time.Millisecond {
						b.Errorf("a run of %v came %v late", c.run.ScheduledAt, late)
					}
				}
				if len(calls) != jobs {
					b.Errorf("%d of %d runs came", len(calls), jobs)
				}
			})
		})
	}
}

// The reach that a full wheel has shortened grows again when there are few plans.
func TestReachGrowsAgain(t *testing.T) {
	s := newPlanStore()
	sched := New(s, Options{})
	sched.maxPlanned = 100
	l := newLoader(sched)
	l.loaded = map[int]store.Position{0: {}}
	w, _ := l.nextWindow(s.now)
	l.loaded[0] = w.End()
	sched.shortenReach(s.now.Add(time.Minute), s.now)
	l.takeReloads()
	if w, wait := l.nextWindow(s.now); len(w.After) != 0 || wait != 30*time.Second || sched.currentReach() != time.Minute {
		t.Errorf("the next window is %+v in %v", w, wait)
	}
	for _, tt := range []struct {
		planned int64
		want    time.Duration
	}{{60, time.Minute}, {24, 2 * time.Minute}, {24, 4 * time.Minute}, {25, 4 * time.Minute}, {0, 8 * time.Minute}, {0, horizon}, {0, horizon}} {
		sched.planned.Store(tt.planned)
		before := l.loaded[0]
		s.now = l.until.Add(-sched.currentReach() / 2)
		w, _ := l.nextWindow(s.now)
		if got := w.Until.Sub(s.now); got != tt.want || w.After[0] != before {
			t.Errorf("with %d plans the window is %+v and reaches %v, wants %v", tt.planned, w, got, tt.want)
		}
		l.loaded[0] = w.End()
	}
}
