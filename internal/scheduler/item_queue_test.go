package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/wheel"
)

// The queue hands out the same items as a list that is searched for the first one.
func TestItemQueueOrder(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var q itemQueue
		var model []dueItem
		now := int64(0)
		for range 300 {
			switch rng.IntN(4) {
			case 0: // much becomes due at one instant, some of it with another priority
				now++
				for range rng.IntN(20) {
					it := dueItem{job: randomID(rng), rank: now - int64(rng.IntN(2)*rng.IntN(100))}
					q.push(it)
					model = append(model, it)
				}
			case 1:
				it := dueItem{job: randomID(rng), rank: rng.Int64N(now + 1)}
				q.push(it)
				model = append(model, it)
			default:
				for range rng.IntN(12) {
					if len(model) == 0 {
						break
					}
					slices.SortFunc(model, func(a, b dueItem) int { return a.compare(&b) })
					want := model[0]
					model = model[1:]
					if first := q.first(); first == nil || *first != want {
						t.Fatalf("seed %d: the first item is %v, want %v", seed, first, want)
					}
					if got := q.pop(); got != want {
						t.Fatalf("seed %d: got %v, want %v", seed, got, want)
					}
				}
			}
			if q.len() != len(model) {
				t.Fatalf("seed %d: %d items, want %d", seed, q.len(), len(model))
			}
		}
		if len(model) == 0 && q.first() != nil {
			t.Fatalf("seed %d: an item is left", seed)
		}
	}
}

// A queue that never becomes empty does not keep the memory of what it has handed out.
func TestItemQueueMemory(t *testing.T) {
	var q itemQueue
	for i := range int64(100_000) {
		q.push(dueItem{rank: i})
		if q.len() > 100 {
			q.pop()
		}
	}
	if cap(q.list)+cap(q.late) > 1000 {
		t.Errorf("100 items are kept in the memory of %d", cap(q.list)+cap(q.late))
	}
}

func randomID(rng *rand.Rand) (id belfry.ID) {
	for i := range id {
		id[i] = byte(rng.Uint32())
	}
	return id
}

// BenchmarkBurst moves plans that are due at one instant from the wheel to the backlog, and
// takes them from there in batches. The plans were loaded shard by shard.
//
//	go test -run '^$' -bench Burst ./internal/scheduler
func BenchmarkBurst(b *testing.B) {
	const jobs, shards = 100_000, 60
	at := time.Now()
	ids := make([]belfry.ID, jobs)
	for i := range ids {
		ids[i] = belfry.NewID(at)
	}
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule = belfry.TypeHTTP, "0 0 1 1 *"
	policy, err := plan.Compile(spec)
	if err != nil {
		b.Fatal(err)
	}
	subject := &plan.Subject{Policy: policy}
	for b.Loop() {
		b.StopTimer()
		w, q := wheel.New[belfry.ID, entry](at.Add(-time.Minute)), newBacklog()
		for shard := range shards {
			for i := shard; i < jobs; i += shards {
				w.Set(ids[i], at, entry{subject: subject, version: 1, shard: int32(shard)})
			}
		}
		b.StartTimer()
		w.Advance(at, func(job belfry.ID, at time.Time, e entry) {
			q.push(dueItem{job: job, at: at, rank: plan.Rank(at, policy.Weight()), entry: e})
		})
		for !q.empty() {
			for _, it := range q.pop(subject.Lane(), fireBatch, plan.MaxRank) {
				q.release(it)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/jobs, "ns/job")
}
