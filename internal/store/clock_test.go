package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

func TestClockWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w store.ClockWatch
		offset := time.Duration(0)
		observe := func() time.Duration { return w.Observe(time.Now().Add(offset).UTC().Round(0), time.Now()) }
		if step := observe(); step != 0 || !w.Settled() {
			t.Errorf("at first there is a step of %s", step)
		}
		for _, by := range []time.Duration{time.Hour, -time.Hour, 30 * time.Second, -30 * time.Second} {
			time.Sleep(10 * time.Second)
			offset += by / 100_000 // The clocks drift.
			if step := observe(); step != 0 {
				t.Errorf("without a step there is one of %s", step)
			}
			offset += by
			if step := observe(); step.Round(time.Second) != by || w.Settled() {
				t.Errorf("a step of %s is one of %s, settled %v", by, step, w.Settled())
			}
			time.Sleep(store.ClockGrace - time.Second)
			if step := observe(); step != 0 || w.Settled() {
				t.Errorf("there is another step of %s, or it is settled too early", step)
			}
			time.Sleep(time.Second)
			if !w.Settled() {
				t.Error("a step is not settled after the grace")
			}
		}
	})
}
