package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// restart stops everything, and starts it again after a while.
func (b *bubble) restart(after time.Duration) {
	b.Helper()
	b.stop()
	if err := b.store.Close(); err != nil {
		b.Fatal(err)
	}
	stopped := time.Now()
	b.sleep(after)
	b.open()
	b.downSince = b.store.(*sqlite.Store).DownSince()
	if b.downSince.Sub(stopped).Abs() > time.Second {
		b.Errorf("the store was down since %s, and believes since %s", stopped, b.downSince)
	}
	b.start(b.store)
}

// decided returns how many occurrences of a job ran, and how many were skipped.
func (b *bubble) decided(job belfry.ID) (ran, skipped int) {
	for _, run := range b.runs(job) {
		if run.Status == belfry.RunSkipped {
			skipped += int(run.SkippedCount)
		} else {
			ran++
		}
	}
	return ran, skipped
}

// What waited for a slot when the process stopped is late after a quick restart, and runs;
// so does what was due during the restart. A longer outage makes missed what was due in it,
// and nothing else; the record says when it was.
func TestLateIsNotMissedAcrossARestart(t *testing.T) {
	for _, tt := range []struct {
		name         string
		down         time.Duration
		ran, skipped int
	}{
		{"a quick restart", 2 * time.Second, 20 + 2 + 10, 0},
		{"an outage", time.Minute, 20 + 10, 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.slots, b.drain = 1, 0
				b.handlerTime = time.Hour // A run keeps the only slot.
				b.create("2000-01-01T00:00:00Z", func(s *belfry.Spec) { s.TimeoutSeconds = 7200 })
				b.start(b.store)
				b.sleep(500 * time.Millisecond)
				job := b.create("* * * * * *", func(s *belfry.Spec) { s.Overlap, s.MissedWindow = belfry.OverlapParallel, belfry.MissedSkip })
				b.sleep(20 * time.Second)
				if ran, skipped := b.decided(job); ran+skipped != 0 {
					b.Fatalf("before the restart %d have run and %d were skipped", ran, skipped)
				}
				b.slots, b.handlerTime = 100, 0
				b.restart(tt.down)
				b.sleep(10 * time.Second)
				ran, skipped := b.decided(job)
				if ran < tt.ran-1 || ran > tt.ran+1 || skipped < tt.skipped-1 || skipped > tt.skipped+1 {
					b.Errorf("%d occurrences have run and %d were skipped, want about %d and %d", ran, skipped, tt.ran, tt.skipped)
				}
				for _, run := range b.runs(job) {
					if run.Status == belfry.RunSkipped && !strings.Contains(run.Error, "no scheduler was running from 2000-01-01T00:00:20Z to 2000-01-01T00:01:2") {
						b.Errorf("the record of the skip says %q", run.Error)
					}
				}
			})
		})
	}
}

// A store that fails for seconds makes nothing missed; one that fails for longer only
// what was due until a worker, which asks every five seconds at least, finds that it
// answers again.
func TestLateIsNotMissedWhenTheStoreFails(t *testing.T) {
	for _, tt := range []struct {
		down         time.Duration
		ran, skipped int
	}{{2 * time.Second, 60, 0}, {30 * time.Second, 30, 30}} {
		t.Run(tt.down.String(), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.slots = 100
				job := b.create("* * * * * *", func(s *belfry.Spec) { s.Overlap, s.MissedWindow = belfry.OverlapParallel, belfry.MissedSkip })
				failing := time.Now().Add(20*time.Second + 500*time.Millisecond)
				b.start(&troubledStore{polledStore: polledStore{Store: b.store}, from: failing, until: failing.Add(tt.down)})
				b.sleep(60*time.Second + 500*time.Millisecond)
				ran, skipped := b.decided(job)
				late := 0 // occurrences until the worker asks
				if tt.skipped > 0 {
					late = 5
				}
				if ran < tt.ran-2-late || ran > tt.ran+2 || skipped < tt.skipped-2 || skipped > tt.skipped+2+late || ran+skipped < 58 {
					b.Errorf("%d occurrences have run and %d were skipped, want about %d and %d", ran, skipped, tt.ran, tt.skipped)
				}
			})
		})
	}
}

// An outage is remembered over the one after it: a scheduler that stops again before it has
// decided what was missed leaves that to the next one.
func TestOutagesAreRemembered(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.slots = 100
		job := b.create("* * * * * *", func(s *belfry.Spec) { s.Overlap, s.MissedWindow = belfry.OverlapParallel, belfry.MissedSkip })
		b.start(b.store)
		b.sleep(10500 * time.Millisecond)
		b.restart(time.Minute)
		b.sleep(0)
		b.stop()
		record := store.Outage{From: b.downSince, To: b.store.Now()}
		for shard := range b.store.Shards() {
			record.Shard = shard
			if outages, err := b.store.Outages(b.Context(), []int{shard}); err != nil || !slices.Contains(outages, record) {
				b.Errorf("the outages of shard %d are %v %v, want %v", shard, outages, err, record)
			}
		}
		loop := newLoop(b.scheduler)
		terms := map[int]store.Term{}
		for shard := range b.store.Shards() {
			terms[shard] = store.Term{Shard: shard, Epoch: 2, Since: b.store.Now().Add(10 * time.Second), DownSince: b.store.Now()}
		}
		loop.beginTerms(b.Context(), terms)
		b.sleep(15 * time.Second)
		for at, want := range map[time.Duration]bool{-61 * time.Second: false, -59 * time.Second: true, -time.Second: true, time.Second: true, 11 * time.Second: false} {
			due := record.To.Add(at)
			if o := loop.missedIn(belfry.ShardOf(job, b.store.Shards()), due, b.store.Now()); !o.To.IsZero() != want {
				b.Errorf("what was due %v after the restart was missed: %v, want %v (%v)", at, !want, want, o)
			}
		}
	})
}
