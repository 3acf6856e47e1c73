package store_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestTwoCreatesOfOneNameHaveOneWinner(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		stores := []store.Store{f.Store}
		if f.reopen != nil {
			stores = append(stores, f.reopen(t))
		}
		for round := range 5 {
			var wait sync.WaitGroup
			errs := make([]error, 6)
			for i := range errs {
				jobs := jobSeq(f.job(f.minutesAgo(1)), f.job(f.minutesAgo(1), withName(fmt.Sprint("contested ", round))))
				wait.Go(func() { errs[i] = stores[i%len(stores)].CreateJobs(ctx, jobs, nil) })
			}
			wait.Wait()
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				} else {
					wantCode(t, "lose the race for a name", err, belfry.Conflict)
				}
			}
			if n := f.count(t, `SELECT count(*) FROM jobs`); won != 1 || n != int64(round+1)*2 {
				t.Fatalf("round %d: %d creates won and there are %d jobs, wants 1 and %d", round, won, n, (round+1)*2)
			}
		}
	})
}

func TestCreateIsAllOrNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.createJob(t, 1, withName("taken"))
		const size = 3000
		generate := func(at int, then func() error) (seen int, err error) {
			err = f.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
				for i := range size {
					seen = i
					if i == at {
						if err := then(); err != nil {
							yield(store.NewJob{}, err)
							return
						}
					}
					if !yield(f.job(f.minutesAgo(1)), nil) {
						return
					}
				}
			}, nil)
			return seen, err
		}
		broken := errors.New("the line cannot be read")
		if _, err := generate(size/2, func() error { return broken }); !errors.Is(err, broken) {
			t.Errorf("got error %v, wants the sequence's own", err)
		}
		if _, err := generate(0, func() error { return broken }); !errors.Is(err, broken) {
			t.Errorf("got error %v from an empty sequence, wants its own", err)
		}
		refused := belfry.Errorf(belfry.Invalid, "line 7 is wrong")
		_, err := generate(size-1, func() error { return refused })
		wantCode(t, "a sequence that refuses", err, belfry.Invalid)
		if n := f.count(t, `SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM plans)`); n != 2 {
			t.Errorf("failed creates left %d rows, wants 2", n)
		}
		if seen, err := generate(-1, nil); err != nil || seen != size-1 {
			t.Errorf("a whole sequence: %v after %d jobs", err, seen+1)
		}
		if n := f.count(t, `SELECT count(*) FROM jobs JOIN plans ON job_id = id`); n != size+1 {
			t.Errorf("there are %d jobs with plans, wants %d", n, size+1)
		}
		f.createJobs(t)
	})
}

func TestACreateWhoseCallerLeavesIsAllOrNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		gone, leave := context.WithCancel(ctx)
		defer leave()
		err := f.CreateJobs(gone, func(yield func(store.NewJob, error) bool) {
			for i := range 2000 {
				if i == 1000 {
					leave()
				}
				if !yield(f.job(f.minutesAgo(1)), nil) {
					return
				}
			}
		}, nil)
		n := f.count(t, `SELECT count(*) FROM jobs`)
		if err == nil && n != 2000 || err != nil && n != 0 && n != 2000 {
			t.Errorf("%d jobs are there, and the answer was %v", n, err)
		}
	})
}

func TestRepeatedCreateDoesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		at := f.minutesAgo(3)
		first := []store.NewJob{f.job(at, withName("fired")), f.job(at, withName("edited")), f.job(at, withName("deleted")), f.job(at)}
		f.createJobs(t, first...)
		f.createJobs(t, first...)
		f.fire(t, f.step(t, first[0].Job))
		f.edit(t, first[1].Job, revise(t, withPayload(`"edited"`)))
		f.edit(t, first[2].Job, deleteJob(t))
		f.createJobs(t, f.job(at, withName("deleted")))

		f.createJobs(t, first...)
		if n := f.count(t, `SELECT count(*) FROM jobs`); n != 5 {
			t.Errorf("there are %d jobs, wants 5", n)
		}
		if p := f.plan(t, first[0].Job.ID); p.Version != 2 || !p.FiredFor.Equal(at) {
			t.Errorf("creating again set the plan back to %+v", p)
		}
		if job := f.getJob(t, first[1].Job); job.Revision != 2 || string(job.Payload) != `"edited"` {
			t.Errorf("creating again set the job back to revision %d with %s", job.Revision, job.Payload)
		}
		_, err := f.Job(ctx, belfry.DefaultNamespace, first[2].Job.ID)
		wantCode(t, "find the deleted job", err, belfry.NotFound)
	})
}

func TestCreateNeverSucceedsWithoutItsJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, size := range []int{1, 200} {
			there := f.job(f.minutesAgo(-60))
			f.createJobs(t, there)
			jobs := []store.NewJob{there}
			for range size {
				jobs = append(jobs, f.job(f.minutesAgo(-60)))
			}
			err := f.CreateJobs(ctx, jobSeq(jobs...), nil)
			n := 0
			for _, job := range jobs[1:] {
				if _, err := f.Job(ctx, job.Job.Namespace, job.Job.ID); err == nil {
					n++
				}
			}
			if err == nil && n != size || err != nil && n != 0 {
				t.Errorf("of %d new jobs beside one that was there %d are stored, and the answer is %v", size, n, err)
			}
		}
	})
}

func TestConcurrentCreatesDoNotDeadlock(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for round := range 3 {
			one, two := fmt.Sprint("one ", round), fmt.Sprint("two ", round)
			calls := [][]store.NewJob{
				{f.job(f.minutesAgo(1), withName(one)), f.job(f.minutesAgo(1), withName(two))},
				{f.job(f.minutesAgo(1), withName(two)), f.job(f.minutesAgo(1), withName(one))},
			}
			errs := make([]error, len(calls))
			var wait sync.WaitGroup
			for i, jobs := range calls {
				wait.Go(func() {
					var known *belfry.Error
					for range 10 {
						if errs[i] = f.CreateJobs(ctx, jobSeq(jobs...), nil); errs[i] == nil || errors.As(errs[i], &known) {
							return
						}
					}
				})
			}
			wait.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Errorf("the answers are %v and %v, wants one winner", errs[0], errs[1])
			}
		}
	})
}

func TestManyJobsAreStoredUnchanged(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const size = 2500
		created := make([]store.NewJob, size)
		for i := range created {
			created[i] = f.job(f.minutesAgo(-i), withName(fmt.Sprint("job ", i)), withPayload(fmt.Sprintf(`{"n": %d}`, i)))
			created[i].Plan.RunsMade, created[i].Job.Tags = int64(i), []string{"all", fmt.Sprint("n", i)}
			if i%5 == 0 {
				created[i].Job.Tags = nil
			}
			if i%7 == 0 {
				withHandler("send")(&created[i].Job)
			}
			if i%3 == 0 {
				created[i].Job.Payload, created[i].Job.Name = nil, ""
				created[i].Job.State, created[i].Plan.NextAt = belfry.JobPaused, time.Time{}
			}
		}
		f.createJobs(t, created...)
		for _, i := range []int{0, 1, 998, 999, 1000, 1001, 1002, 1999, 2000, 2001, size - 1} {
			want := created[i]
			if got := f.plan(t, want.Job.ID); got != want.Plan {
				t.Errorf("plan %d is %+v, wants %+v", i, got, want.Plan)
			}
			got := f.getJob(t, want.Job)
			wantEqual(t, fmt.Sprint("job ", i), got, want.Job, cmpopts.IgnoreFields(belfry.Job{}, "NextRunAt", "Manifest.Status"))
		}
	})
}

func TestHostileTextIsStoredOrRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		long := strings.Repeat("長", belfry.MaxName)
		payload := `{"text": "` + strings.Repeat(`\u0000 \"quoted\" \\ 😀 `, 2000) + `"}`
		for _, name := range []string{`Robert'); DROP TABLE jobs; --`, `a "b" \c\ %s %d $1 ?`, "tab\tnew\nline\r", "😀🏳️‍🌈é\u202e", long, " "} {
			job := f.createJob(t, 1, withName(name), withNamespace(name), withPayload(payload))
			got := f.getJob(t, job)
			if got.Name != name || got.Namespace != name || string(got.Payload) != payload {
				t.Errorf("%.20q became %.20q in %.20q with %d of %d bytes", name, got.Name, got.Namespace, len(got.Payload), len(payload))
			}
			list, err := f.ListJobs(ctx, name, belfry.JobFilter{}, store.Page{Limit: 2})
			if err != nil || len(list.Jobs) != 1 {
				t.Errorf("namespace %.20q lists %d jobs (%v)", name, len(list.Jobs), err)
			}
		}
		before := f.count(t, `SELECT count(*) FROM jobs`)
		for _, name := range []string{"zero\x00byte", "not \xff\xfe utf-8"} {
			err := f.CreateJobs(ctx, jobSeq(f.job(f.minutesAgo(1)), f.job(f.minutesAgo(1), withName(name))), nil)
			if after := f.count(t, `SELECT count(*) FROM jobs`); err != nil && after != before {
				t.Errorf("%q was refused (%v), but %d jobs were left", name, err, after-before)
			} else if err == nil && after != before+2 {
				t.Errorf("%q was taken, but %d jobs were added", name, after-before)
			}
			before = f.count(t, `SELECT count(*) FROM jobs`)
		}
		big := f.createJob(t, 1, withPayload(`"`+strings.Repeat("x", belfry.MaxPayload-2)+`"`))
		if got := f.getJob(t, big); len(got.Payload) != belfry.MaxPayload {
			t.Errorf("the largest payload has %d bytes after storing", len(got.Payload))
		}
	})
}

func TestLargePayloadsAreCreatedInBulk(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		large := withPayload(`"` + strings.Repeat("x", belfry.MaxPayload-2) + `"`)
		var jobs []store.NewJob
		for range 40 { // more bytes than go to the server at a time, fewer jobs
			jobs = append(jobs, f.job(f.minutesAgo(-60), large))
		}
		f.createJobs(t, jobs...)
		if n := f.count(t, `SELECT count(*) FROM jobs j JOIN plans p ON p.job_id = j.id WHERE length(j.payload) = ?`, belfry.MaxPayload); n != 40 {
			t.Errorf("%d of 40 jobs were stored", n)
		}
	})
}

// This test is not parallel to others, whose memory it would count.
func TestBulkCreateKeepsMemoryFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("100,000 jobs take a few seconds")
	}
	const size, every, growth = 100_000, 10_000, 64 << 20
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			f := open(t, b)
			at := f.minutesAgo(-60)
			var first, most uint64
			start := time.Now()
			err := f.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
				for i := range size {
					if i%every == 0 {
						runtime.GC()
						var m runtime.MemStats
						runtime.ReadMemStats(&m)
						if i == 0 {
							first = m.HeapAlloc
						}
						most = max(most, m.HeapAlloc)
					}
					if !yield(f.job(at, withName(fmt.Sprint("job ", i)), withPayload(fmt.Sprintf(`{"n": %d, "filler": "%0512d"}`, i, i))), nil) {
						return
					}
				}
			}, nil)
			if err != nil {
				t.Fatalf("create %d jobs: %v", size, err)
			}
			took := time.Since(start).Round(time.Millisecond)
			if n := f.count(t, `SELECT count(*) FROM jobs JOIN plans ON job_id = id`); n != size {
				t.Errorf("there are %d jobs with plans, wants %d", n, size)
			}
			if most > first+growth {
				t.Errorf("the heap grew from %d to %d MiB, wants at most %d more", first>>20, most>>20, growth>>20)
			}
			t.Logf("in %v the heap grew from %.1f to %.1f MiB", took, float64(first)/(1<<20), float64(most)/(1<<20))
		})
	}
}
