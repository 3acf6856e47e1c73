package store_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// request is a request in the default namespace with a body.
func request(key, body, response string) *store.Request {
	return &store.Request{
		Namespace: belfry.DefaultNamespace, Key: key, Hash: sha256.Sum256([]byte(body)),
		Response: func() ([]byte, error) { return []byte(response), nil },
	}
}

// keyedCall is a call with an idempotency key. Every call has ids of
// its own, as that of a client that has lost the first one.
type keyedCall struct {
	name  string
	call  func(s store.Store, f *fixture, job belfry.Job, r *store.Request) error
	count string // how often it was done
}

var keyedCalls = []keyedCall{
	{"create one", func(s store.Store, f *fixture, _ belfry.Job, r *store.Request) error {
		return s.CreateJobs(ctx, jobSeq(f.job(f.minutesAgo(1), withTags("made"))), r)
	}, `SELECT count(*) FROM jobs JOIN plans ON job_id = id WHERE tags IS NOT NULL`},
	{"create many", func(s store.Store, f *fixture, _ belfry.Job, r *store.Request) error {
		jobs := make([]store.NewJob, 1500)
		for i := range jobs {
			jobs[i] = f.job(f.minutesAgo(1))
		}
		withTags("made")(&jobs[len(jobs)-1].Job)
		return s.CreateJobs(ctx, jobSeq(jobs...), r)
	}, `SELECT count(*) FROM jobs JOIN plans ON job_id = id WHERE tags IS NOT NULL`},
	{"trigger", func(s store.Store, f *fixture, job belfry.Job, r *store.Request) error {
		return s.Trigger(ctx, []plan.Trigger{f.newTrigger(job, `"mine"`), f.newTrigger(job, "")}, r)
	}, `SELECT count(*) / 2 FROM triggers`},
}

// eachKeyedCall runs a test over every backend and call. The job is one to trigger.
func eachKeyedCall(t *testing.T, test func(t *testing.T, f *fixture, v keyedCall, job belfry.Job)) {
	t.Helper()
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, v := range keyedCalls {
			t.Run(v.name, func(t *testing.T) {
				f.deleteAll(t)
				test(t, f, v, f.createJob(t, -60))
			})
		}
	})
}

// wantDuplicate expects that a call did nothing because the request was made before.
func wantDuplicate(t tb, err error, body, response string) {
	t.Helper()
	var before *store.DuplicateRequest
	if !errors.As(err, &before) || before.Hash != sha256.Sum256([]byte(body)) || string(before.Response) != response {
		t.Errorf("got %v (%+v), wants the response %q to %q", err, before, response, body)
	}
}

func (f *fixture) wantCallCount(t tb, v keyedCall, times int64) {
	t.Helper()
	if n := f.count(t, v.count); n != times {
		t.Errorf("%s: was done %d times, wants %d", v.name, n, times)
	}
}

func (f *fixture) cachedResponse(t tb, namespace, key string) *store.DuplicateRequest {
	t.Helper()
	before, err := f.CachedResponse(ctx, namespace, key)
	if err != nil {
		t.Fatalf("look for key %q: %v", key, err)
	}
	return before
}

func TestARequestIsDoneOnceAndAnsweredTheSame(t *testing.T) {
	eachKeyedCall(t, func(t *testing.T, f *fixture, v keyedCall, job belfry.Job) {
		if before := f.cachedResponse(t, job.Namespace, "key"); before != nil {
			t.Errorf("an unused key has the response %+v", before)
		}
		if err := v.call(f, f, job, request("key", "this", "first")); err != nil {
			t.Fatalf("the first request: %v", err)
		}
		wantDuplicate(t, v.call(f, f, job, request("key", "this", "second")), "this", "first")
		wantDuplicate(t, v.call(f, f, job, request("key", "something else", "third")), "this", "first")
		f.wantCallCount(t, v, 1)
		if before := f.cachedResponse(t, job.Namespace, "key"); before == nil || string(before.Response) != "first" || before.Hash != sha256.Sum256([]byte("this")) {
			t.Errorf("the key has the response %+v", before)
		}
		// Keys differ by every letter, and by their namespace.
		theirs := request("key", "this", "theirs")
		theirs.Namespace = "theirs"
		for _, r := range []*store.Request{request("Key", "this", ""), request(`k'"%_\é😀`, "this", `{"a": "\u0000"}`), theirs} {
			response, _ := r.Response()
			if err := v.call(f, f, job, r); err != nil {
				t.Errorf("another key, %q: %v", r.Key, err)
			}
			if before := f.cachedResponse(t, r.Namespace, r.Key); before == nil || string(before.Response) != string(response) {
				t.Errorf("the key %q has the response %+v, wants %q", r.Key, before, response)
			}
		}
		if before := f.cachedResponse(t, job.Namespace, "KEY"); before != nil {
			t.Errorf("a key in other letters has the response %+v", before)
		}
		if err := v.call(f, f, job, nil); err != nil {
			t.Errorf("without a key: %v", err)
		}
		f.wantCallCount(t, v, 5)
	})
}

func TestARequestAfterARestartIsStillAnsweredTheSame(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -60)
		v := keyedCalls[len(keyedCalls)-1]
		if err := v.call(f, f, job, request("key", "this", "first")); err != nil {
			t.Fatal(err)
		}
		f.restart(t)
		f.edit(t, job, deleteJob(t))
		wantDuplicate(t, v.call(f, f, job, request("key", "this", "second")), "this", "first")
	})
}

func TestOneOfManyEqualRequestsIsDone(t *testing.T) {
	eachKeyedCall(t, func(t *testing.T, f *fixture, v keyedCall, job belfry.Job) {
		stores := []store.Store{f.Store}
		if f.reopen != nil {
			stores = append(stores, f.reopen(t))
		}
		const callers = 20
		errs := make([]error, callers)
		var wait sync.WaitGroup
		for i := range errs {
			wait.Go(func() {
				errs[i] = v.call(stores[i%len(stores)], f, job, request("key", "this", fmt.Sprint("response ", i)))
			})
		}
		wait.Wait()
		first := slices.Index(errs, nil)
		if first < 0 {
			t.Fatalf("no call succeeded: %v", errs)
		}
		for i, err := range errs {
			if i != first {
				wantDuplicate(t, err, "this", fmt.Sprint("response ", first))
			}
		}
		f.wantCallCount(t, v, 1)
	})
}

func TestAResponseIsMadeAfterAllJobsAreTaken(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, size := range []int{0, 1, 3000} {
			var ids []string
			jobs := func(yield func(store.NewJob, error) bool) {
				for range size {
					job := f.job(f.minutesAgo(-1))
					ids = append(ids, job.Job.ID.String())
					if !yield(job, nil) {
						return
					}
				}
			}
			r := request(fmt.Sprint("of ", size), "this", "")
			r.Response = func() ([]byte, error) { return []byte(strings.Join(ids, " ")), nil }
			if err := f.CreateJobs(ctx, jobs, r); err != nil {
				t.Fatalf("create %d jobs: %v", size, err)
			}
			before := f.cachedResponse(t, r.Namespace, r.Key)
			if before == nil || string(before.Response) != strings.Join(ids, " ") || len(ids) != size {
				t.Errorf("the response to %d jobs was taken when %d were there, and kept %v", size, len(ids), before != nil)
			}
		}
	})
}

func TestARequestThatFailedLeavesNoKey(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -60, withName("taken"))
		jobs := func(size int, changes ...func(*belfry.Job)) []store.NewJob {
			out := make([]store.NewJob, size)
			for i := range out {
				out[i] = f.job(f.minutesAgo(1))
			}
			for _, change := range changes {
				change(&out[size-1].Job)
			}
			return out
		}
		broken := errors.New("it broke")
		failing := request("key", "this", "")
		failing.Response = func() ([]byte, error) { return nil, broken }
		isBroken := func(err error) bool { return errors.Is(err, broken) }
		isCode := func(code belfry.Code) func(error) bool {
			return func(err error) bool { return belfry.CodeOf(err) == code }
		}
		for _, size := range []int{1, 1500} {
			for _, tt := range []struct {
				failure string
				call    func() error
				want    func(error) bool
			}{
				{"the name is taken", func() error {
					return f.CreateJobs(ctx, jobSeq(jobs(size, withName("taken"))...), request("key", "this", ""))
				}, isCode(belfry.Conflict)},
				{"the sequence ends with an error", func() error {
					return f.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
						for _, job := range jobs(size) {
							if !yield(job, nil) {
								return
							}
						}
						yield(store.NewJob{}, broken)
					}, request("key", "this", ""))
				}, isBroken},
				{"the response fails for a create", func() error { return f.CreateJobs(ctx, jobSeq(jobs(size)...), failing) }, isBroken},
				{"the response fails for a trigger", func() error { return f.Trigger(ctx, f.oneTrigger(job), failing) }, isBroken},
				{"there is no such job", func() error {
					return f.Trigger(ctx, f.oneTrigger(belfry.Job{ID: newID(), Namespace: job.Namespace}), request("key", "this", ""))
				}, isCode(belfry.NotFound)},
			} {
				if err := tt.call(); !tt.want(err) {
					t.Errorf("%s: got %v", tt.failure, err)
				}
				n := f.count(t, `SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM triggers) + (SELECT count(*) FROM requests)`)
				if before := f.cachedResponse(t, job.Namespace, "key"); before != nil || n != 1 {
					t.Errorf("%s: left %d rows and the response %+v", tt.failure, n-1, before)
				}
			}
		}
		if err := f.CreateJobs(ctx, jobSeq(jobs(1)...), request("key", "this", "")); err != nil {
			t.Errorf("the key cannot be used after all that: %v", err)
		}
	})
}

func TestKeysOfRequestsArePruned(t *testing.T) {
	eachKeyedCall(t, func(t *testing.T, f *fixture, v keyedCall, job belfry.Job) {
		if err := v.call(f, f, job, request("key", "this", "first")); err != nil {
			t.Fatal(err)
		}
		prune := func(age time.Duration) {
			t.Helper()
			f.backdate(t, age, "requests", "created_at", "")
			if _, err := f.Prune(ctx, time.Hour); err != nil {
				t.Fatalf("prune: %v", err)
			}
		}
		prune(store.RequestRetention - time.Hour)
		wantDuplicate(t, v.call(f, f, job, request("key", "this", "second")), "this", "first")
		prune(2 * time.Hour)
		if before := f.cachedResponse(t, job.Namespace, "key"); before != nil {
			t.Errorf("after a week the key has the response %+v", before)
		}
		if err := v.call(f, f, job, request("key", "something else", "second")); err != nil {
			t.Errorf("after a week: %v", err)
		}
		f.wantCallCount(t, v, 2)
	})
}
