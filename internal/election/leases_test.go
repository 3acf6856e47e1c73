package election

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// quick is an ordinary link.
var quick = linkState{before: 2 * time.Millisecond, after: 3 * time.Millisecond}

// settled is when a change in a healthy fleet has been dealt with: one node must
// notice, release, and another must notice that.
const settled = 2*renewInterval + 100*time.Millisecond

func TestEveryShardHasOneLeader(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 32)
				var nodes []*node
				for range size {
					nodes = append(nodes, f.start(quick))
				}
				time.Sleep(settled)
				f.wantLeaders(nodes...)
				began := f.count()
				for range 6 {
					time.Sleep(10 * time.Second)
					f.wantLeaders(nodes...)
				}
				if f.count() != began {
					t.Errorf("%d terms began although nothing happened", f.count()-began)
				}
			})
		})
	}
}

func TestNewNodeTakesItsShareOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 64)
		f.stopDelay = 200 * time.Millisecond
		a, b := f.start(quick), f.start(quick)
		time.Sleep(settled)
		before := f.leaders()
		c := f.start(quick)
		time.Sleep(settled + time.Second)
		f.wantLeaders(a, b, c)
		for shard, now := range f.leaders() {
			if now != before[shard] && now != c {
				t.Errorf("shard %d moved from %s to %s although neither is new", shard, before[shard].id, now.id)
			}
		}
	})
}

func TestStoppedNodeIsReplaced(t *testing.T) {
	for name, how := range map[string]linkState{"its calls fail": down, "its calls hang": hang} {
		t.Run(name, func(t *testing.T) {
			for offset := time.Duration(0); offset < renewInterval; offset += renewInterval / 10 {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, 16)
					a, b, c := f.start(quick), f.start(quick), f.start(quick)
					time.Sleep(time.Minute + offset)
					f.wantLeaders(a, b, c)
					b.setState(how)
					time.Sleep(ttl - margin)
					synctest.Wait()
					for shard, leader := range f.leaders() {
						if leader == b {
							t.Errorf("shard %d is still led by a node that is cut off", shard)
						}
					}
					time.Sleep(5*time.Second - (ttl - margin))
					f.wantLeaders(a, c)

					b.setState(quick)
					time.Sleep(settled + callTimeout)
					f.wantLeaders(a, b, c)
				})
			}
		})
	}
}

func TestResignReleasesLeasesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		f.stopDelay = 100 * time.Millisecond
		a, b := f.start(quick), f.start(quick)
		time.Sleep(time.Minute)
		f.wantLeaders(a, b)
		a.resign()
		for _, lease := range f.leases.held("") {
			if lease.Owner == a.id {
				t.Errorf("%s is still held by the node that resigned", lease.Name)
			}
		}
		time.Sleep(renewInterval + 50*time.Millisecond)
		f.wantLeaders(b)
	})
}

func TestResignWithoutADatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a := f.start(quick)
		time.Sleep(settled)
		a.setState(hang)
		time.Sleep(renewInterval / 2)
		start := time.Now()
		a.resign()
		if took := time.Since(start); took > 3*callTimeout {
			t.Errorf("it took %v", took)
		}
		if left := f.leaders(); len(left) > 0 {
			t.Errorf("%d shards are led by a node that is gone", len(left))
		}
	})
}

// A term counts from the start of the call that renewed it, however slow the reply is.
func TestTermEndsBeforeItsLease(t *testing.T) {
	for name, first := range map[string]linkState{
		"a quick answer":                       {},
		"a slow one":                           {after: 300 * time.Millisecond},
		"slow on the way there":                {before: 300 * time.Millisecond},
		"as slow as the caller has patience":   {after: callTimeout - time.Microsecond},
		"slow both ways, and slow to stop too": {before: 200 * time.Millisecond, after: 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4)
				f.stopDelay = margin - time.Microsecond
				a := f.start(first)
				for len(f.leaders()) == 0 {
					time.Sleep(time.Millisecond)
				}
				a.setState(hang)
				time.Sleep(ttl)
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, r := range f.terms {
					if lease := f.leases.row(shardName(r.Shard)); r.end.IsZero() || !r.end.Before(lease.expires) {
						t.Errorf("the term ended at %v, the lease at %v", r.end, lease.expires)
					}
				}
			})
		})
	}
}

// The term of a shard may run out while the answer that would have prolonged it is
// under way. The lease is the node's own as before, and so must be the shard.
func TestLateRenewalBeginsANewTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a := f.start(linkState{})
		time.Sleep(10*renewInterval + renewInterval/2)
		f.wantLeaders(a)
		began := f.count()
		a.setState(down)
		// The last renewal was at 10 rounds and its term lasts until 14 and two thirds;
		// the one at 14 is answered after that.
		time.Sleep(3 * renewInterval)
		a.setState(linkState{after: 700 * time.Millisecond})
		time.Sleep(renewInterval)
		a.setState(linkState{})
		time.Sleep(settled)
		f.wantLeaders(a)
		if f.count() == began {
			t.Error("no term ran out: the test misses its moment")
		}
		time.Sleep(time.Minute)
		f.wantLeaders(a)
	})
}

// A clock of the database that jumps may let another node take the lease between two renewals.
func TestLeaseHeldByAnotherMeanwhileBeginsANewTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a := f.start(quick)
		time.Sleep(10*renewInterval + renewInterval/2)
		f.leases.edit(shardName(2), func(r *row) { r.epoch += 2 })
		time.Sleep(renewInterval)
		f.wantLeaders(a)
		f.mu.Lock()
		defer f.mu.Unlock()
		if last := f.terms[len(f.terms)-1]; len(f.terms) != 5 || last.Shard != 2 || last.Epoch != 3 {
			t.Errorf("%d terms began, the last with %+v; want one more, of shard 2 with epoch 3", len(f.terms), last.Term)
		}
	})
}

func TestLeaseTakenByAnotherEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.start(quick)
		time.Sleep(10*renewInterval + renewInterval/2)
		f.leases.edit(shardName(2), func(r *row) { r.owner = belfry.NewID(time.Now()) })
		time.Sleep(renewInterval)
		if leaders := f.leaders(); leaders[2] != nil || len(leaders) != 3 {
			t.Errorf("shard 2 is led by %s, and %d are led in all", leaders[2].name(), len(leaders))
		}
	})
}

func TestFrozenNodeLeadsNothingAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		a, b := f.start(quick), f.start(quick)
		time.Sleep(time.Minute)
		a.setState(noReply) // What it asks for is done, so its name and shards stay its own.
		time.Sleep(2 * ttl)
		synctest.Wait()
		for shard, leader := range f.leaders() {
			if leader == a {
				t.Errorf("shard %d is led by a node that gets no answers", shard)
			}
		}
		a.setState(quick)
		time.Sleep(settled)
		f.wantLeaders(a, b)
	})
}

// Whatever happens to the calls of the nodes, no shard has two leaders at an
// instant, which fleet.lead checks, and when it is over all is well again.
func TestNoShardHasTwoLeaders(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRandomFaults(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func testRandomFaults(t *testing.T, dice *rand.Rand) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(dice.Int64N(int64(d))) }
	f := newFleet(t, 12)
	f.stopDelay = upTo(margin)
	nodes := []*node{f.start(quick), f.start(quick), f.start(quick)}
	for range 60 {
		time.Sleep(upTo(2 * time.Second))
		n := dice.IntN(len(nodes))
		switch dice.IntN(10) {
		case 0:
			nodes[n].setState(down)
		case 1:
			nodes[n].setState(hang)
		case 2:
			nodes[n].setState(noReply)
		case 3:
			nodes[n].setState(linkState{lose: true})
		case 4, 5:
			nodes[n].setState(linkState{before: upTo(callTimeout), after: upTo(callTimeout)})
		case 6:
			nodes[n].setState(linkState{after: upTo(callTimeout), lose: dice.IntN(2) == 0})
		case 7:
			nodes[n].resign()
			nodes[n] = f.start(quick)
		default:
			nodes[n].setState(quick)
		}
	}
	for _, n := range nodes {
		n.setState(quick)
	}
	time.Sleep(2*ttl + settled) // nodes that resigned meanwhile may have left leases
	f.wantLeaders(nodes...)
	if f.count() <= f.leases.shards {
		t.Error("no shard changed its leader: the faults had no effect")
	}
}

func TestTermSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		start := time.Now()
		f.start(linkState{after: 100 * time.Millisecond})
		time.Sleep(renewInterval)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, r := range f.terms {
			if r.Since.Before(start) || r.Since.After(r.begin) || r.Epoch != 1 {
				t.Errorf("a node that leads from %v on has the term %+v", r.begin, r.Term)
			}
		}
	})
}

func TestAllShardsAreLedByTheOnlyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		f.stopDelay = time.Second
		n := &node{nodeStore: &nodeStore{leaseTable: f.leases}}
		ctx, stop := context.WithCancel(t.Context())
		since, ended := time.Now(), make(chan struct{})
		go func() {
			defer close(ended)
			if err := (AllShards{Store: n.nodeStore}).Run(ctx, func(ctx context.Context, term store.Term) { f.lead(ctx, n, term) }); err != nil {
				t.Errorf("the elector stopped: %v", err)
			}
		}()
		time.Sleep(time.Hour)
		if got := f.leaders(); len(got) != 16 || f.count() != 16 {
			t.Errorf("%d shards of 16 are led, in %d terms", len(got), f.count())
		}
		for _, r := range f.terms {
			if !r.Since.Equal(since) {
				t.Errorf("shard %d is led since %v, want %v", r.Shard, r.Since, since)
			}
		}
		stop()
		start := time.Now()
		synctest.Wait()
		if left := f.leaders(); len(left) > 0 {
			t.Errorf("after the end %d shards are led", len(left))
		}
		<-ended
		if waited := time.Since(start); waited != f.stopDelay {
			t.Errorf("the elector ended after %v, want it to wait %v for what it led", waited, f.stopDelay)
		}
	})
}

// A node whose leader makes no progress gives its shards up although it could renew its
// leases, and takes its share again once there is progress.
func TestStalledLeaderIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 32)
		a, b := f.start(quick), f.start(quick)
		time.Sleep(settled)
		f.wantLeaders(a, b)
		b.stalled.Store(int64(12 * time.Second))
		time.Sleep(settled)
		for shard, leader := range f.leaders() {
			if leader != a {
				t.Errorf("shard %d is not led by the other node", shard)
			}
		}
		time.Sleep(time.Minute)
		b.stalled.Store(0)
		time.Sleep(settled + time.Second)
		f.wantLeaders(a, b)
	})
}

// A term knows when the one before it ended, also if that was its own.
func TestTermsKnowHowLongNobodyLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a := f.start(quick)
		time.Sleep(settled)
		a.resign()
		stopped := time.Now()
		time.Sleep(time.Minute)
		b := f.start(quick)
		time.Sleep(settled)
		b.setState(down)
		time.Sleep(time.Minute)
		b.setState(quick)
		time.Sleep(settled)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.terms) != 12 {
			t.Fatalf("%d terms began, want 3 of each shard", len(f.terms))
		}
		for i, term := range f.terms {
			gap := term.Since.Sub(term.DownSince)
			switch {
			case i < 4 && !term.DownSince.IsZero():
				t.Errorf("the first term of shard %d follows one that ended at %s", term.Shard, term.DownSince)
			case i >= 4 && i < 8 && term.DownSince.Sub(stopped).Abs() > time.Second:
				t.Errorf("the second term of shard %d follows one that ended at %s, want %s", term.Shard, term.DownSince, stopped)
			case i >= 8 && (gap < 50*time.Second || gap > time.Minute):
				t.Errorf("the third term of shard %d follows a gap of %s", term.Shard, gap)
			}
		}
	})
}

// A node says which shards it has taken over, and which it has given up.
func TestTakenOverShardsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		a := f.start(quick)
		time.Sleep(settled)
		b := f.start(quick)
		time.Sleep(settled + time.Second)
		f.wantLeaders(a, b)
		taken := map[*node]int64{}
		for _, leader := range f.leaders() {
			taken[leader]++
		}
		if got := a.taken.Load(); got != 16 {
			t.Errorf("the first took over %d shards", got)
		}
		if got := b.taken.Load(); got != taken[b] {
			t.Errorf("the second took over %d shards, and leads %d", got, taken[b])
		}
	})
}
