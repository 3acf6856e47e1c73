package control

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
)

func TestIDAfterIsGreaterAndStillAnID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xfe, 0xff}), 16, 16)
		id, fresh := belfry.ID(bytes.Draw(t, "id")), belfry.ID(bytes.Draw(t, "fresh"))
		id[0] &= 0x7f // ids end in the year 6400
		id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
		next := idAfter(id, fresh)
		if next.Compare(id) <= 0 || next[6]>>4 != 7 || next[8]>>6 != 2 {
			t.Fatalf("after %s comes %s", id, next)
		}
		if id[15] < 0x7f && id[12] < 0x7f && fresh[12] == 0 && string(next[:12]) != string(id[:12]) {
			t.Fatalf("from %s to %s is too far", id, next)
		}
	})
}

// A waiter that goes away just when it is woken leaves what it was woken for to
// others.
func TestClaimPollerPassesAWakeOn(t *testing.T) {
	for _, tt := range []struct {
		name          string
		woken, served bool
		want          int
	}{
		{"it was not woken", false, false, 0},
		{"it took what there was", true, true, 0},
		{"it left without a claim", true, false, 1},
	} {
		leaver := &claimWaiter{woken: tt.woken}
		p := claimPoller{waiting: []*claimWaiter{leaver, {}}, kick: make(chan struct{}, 1), stop: func() { t.Error("the poller stopped") }}
		if p.remove(leaver, tt.served); len(p.kick) != tt.want || len(p.waiting) != 1 {
			t.Errorf("%s: %d polls were requested, %d wait", tt.name, len(p.kick), len(p.waiting))
		}
	}
}

// As many computations as there are turns go on at once. Others wait, but not for long,
// nor for somebody who has left.
func TestComputingWaitsForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(computing, 2)
		var running, most atomic.Int32
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				err := c.do(t.Context(), func() error {
					most.Store(max(most.Load(), running.Add(1)))
					time.Sleep(shortCompute)
					running.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := most.Load(); n != 2 || len(c) != 0 {
			t.Errorf("%d went on at once, %d still do", n, len(c))
		}
		for took, rest := range map[time.Duration]time.Duration{10 * time.Millisecond: 10 * time.Millisecond, time.Hour: maxComputeRest} {
			c.do(t.Context(), func() error { time.Sleep(took); return nil })
			time.Sleep(rest - 1)
			synctest.Wait()
			resting := len(c)
			time.Sleep(time.Nanosecond)
			if synctest.Wait(); resting != 1 || len(c) != 0 {
				t.Errorf("after %v: %d turns were taken shortly before %v had passed, %d afterwards", took, resting, rest, len(c))
			}
		}
		never := func() error { t.Error("computed without a turn"); return nil }
		c <- struct{}{}
		c <- struct{}{}
		start := time.Now()
		if err := c.do(t.Context(), never); !errors.Is(err, ErrBusy) || time.Since(start) != maxComputeWait {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.do(ctx, never); belfry.CodeOf(err) != belfry.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		<-c
		if err := c.do(ctx, never); belfry.CodeOf(err) != belfry.Unavailable {
			t.Errorf("got %v", err)
		}
	})
}
