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

// request makes a request in the default namespace, for what the text says.
func request(key, asked, answer string) *store.Request {
	return &store.Request{
		Namespace: belfry.DefaultNamespace, Key: key, Hash: sha256.Sum256([]byte(asked)),
		Response: func() ([]byte, error) { return []byte(answer), nil },
	}
}

// verb is something that can be asked for with a key. Every call asks with ids of
// its own, as somebody does who has forgotten the first call.
type verb struct {
	name  string
	ask   func(s store.Store, f *fixture, job belfry.Job, r *store.Request) error
	count string // how often it was done
}

var verbs = []verb{
	{"create one", func(s store.Store, f *fixture, _ belfry.Job, r *store.Request) error {
		return s.CreateJobs(ctx, each(f.job(f.minutesAgo(1), withTags("made"))), r)
	}, `SELECT count(*) FROM jobs JOIN plans ON job_id = id WHERE tags IS NOT NULL`},
	{"create many", func(s store.Store, f *fixture, _ belfry.Job, r *store.Request) error {
		jobs := make([]store.NewJob, 1500)
		for i := range jobs {
			jobs[i] = f.job(f.minutesAgo(1))
		}
		withTags("made")(&jobs[len(jobs)-1].Job)
		return s.CreateJobs(ctx, each(jobs...), r)
	}, `SELECT count(*) FROM jobs JOIN plans ON job_id = id WHERE tags IS NOT NULL`},
	{"trigger", func(s store.Store, f *fixture, job belfry.Job, r *store.Request) error {
		return s.Trigger(ctx, []plan.Trigger{f.wish(job, `"mine"`), f.wish(job, "")}, r)
	}, `SELECT count(*) / 2 FROM triggers`},
}

// eachVerb runs a test over every backend and verb. The job is one to trigger.
func eachVerb(t *testing.T, test func(t *testing.T, f *fixture, v verb, job belfry.Job)) {
	t.Helper()
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, v := range verbs {
			t.Run(v.name, func(t *testing.T) {
				f.wipe(t)
				test(t, f, v, f.created(t, -60))
			})
		}
	})
}

// wantRepeated expects that a call did nothing because the request was made before.
func wantRepeated(t tb, err error, asked, answer string) {
	t.Helper()
	var before *store.DuplicateRequest
	if !errors.As(err, &before) || before.Hash != sha256.Sum256([]byte(asked)) || string(before.Response) != answer {
		t.Errorf("got %v (%+v), wants the answer %q to %q", err, before, answer, asked)
	}
}

func (f *fixture) wantDone(t tb, v verb, times int64) {
	t.Helper()
	if n := f.count(t, v.count); n != times {
		t.Errorf("%s: was done %d times, wants %d", v.name, n, times)
	}
}

func (f *fixture) answered(t tb, namespace, key string) *store.DuplicateRequest {
	t.Helper()
	before, err := f.CachedResponse(ctx, namespace, key)
	if err != nil {
		t.Fatalf("look for key %q: %v", key, err)
	}
	return before
}

func TestARequestIsDoneOnceAndAnsweredTheSame(t *testing.T) {
	eachVerb(t, func(t *testing.T, f *fixture, v verb, job belfry.Job) {
		if before := f.answered(t, job.Namespace, "key"); before != nil {
			t.Errorf("an unused key has the answer %+v", before)
		}
		if err := v.ask(f, f, job, request("key", "this", "first")); err != nil {
			t.Fatalf("the first request: %v", err)
		}
		wantRepeated(t, v.ask(f, f, job, request("key", "this", "second")), "this", "first")
		wantRepeated(t, v.ask(f, f, job, request("key", "something else", "third")), "this", "first")
		f.wantDone(t, v, 1)
		if before := f.answered(t, job.Namespace, "key"); before == nil || string(before.Response) != "first" || before.Hash != sha256.Sum256([]byte("this")) {
			t.Errorf("the key has the answer %+v", before)
		}
		// Keys are told apart by every letter, and by their namespace.
		theirs := request("key", "this", "theirs")
		theirs.Namespace = "theirs"
		for _, r := range []*store.Request{request("Key", "this", ""), request(`k'"%_\é😀`, "this", `{"a": "\u0000"}`), theirs} {
			answer, _ := r.Response()
			if err := v.ask(f, f, job, r); err != nil {
				t.Errorf("another key, %q: %v", r.Key, err)
			}
			if before := f.answered(t, r.Namespace, r.Key); before == nil || string(before.Response) != string(answer) {
				t.Errorf("the key %q has the answer %+v, wants %q", r.Key, before, answer)
			}
		}
		if before := f.answered(t, job.Namespace, "KEY"); before != nil {
			t.Errorf("a key in other letters has the answer %+v", before)
		}
		if err := v.ask(f, f, job, nil); err != nil {
			t.Errorf("without a key: %v", err)
		}
		f.wantDone(t, v, 5)
	})
}

func TestARequestAfterARestartIsStillAnsweredTheSame(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, -60)
		v := verbs[len(verbs)-1]
		if err := v.ask(f, f, job, request("key", "this", "first")); err != nil {
			t.Fatal(err)
		}
		f.restart(t)
		f.edit(t, job, remove(t))
		wantRepeated(t, v.ask(f, f, job, request("key", "this", "second")), "this", "first")
	})
}

func TestOneOfManyEqualRequestsIsDone(t *testing.T) {
	eachVerb(t, func(t *testing.T, f *fixture, v verb, job belfry.Job) {
		stores := []store.Store{f.Store}
		if f.reopen != nil {
			stores = append(stores, f.reopen(t))
		}
		const callers = 20
		errs := make([]error, callers)
		var wait sync.WaitGroup
		for i := range errs {
			wait.Go(func() {
				errs[i] = v.ask(stores[i%len(stores)], f, job, request("key", "this", fmt.Sprint("answer ", i)))
			})
		}
		wait.Wait()
		first := slices.Index(errs, nil)
		if first < 0 {
			t.Fatalf("nobody was served: %v", errs)
		}
		for i, err := range errs {
			if i != first {
				wantRepeated(t, err, "this", fmt.Sprint("answer ", first))
			}
		}
		f.wantDone(t, v, 1)
	})
}

func TestAnAnswerKnowsWhatWasCreated(t *testing.T) {
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
			before := f.answered(t, r.Namespace, r.Key)
			if before == nil || string(before.Response) != strings.Join(ids, " ") || len(ids) != size {
				t.Errorf("the answer to %d jobs was taken when %d were there, and kept %v", size, len(ids), before != nil)
			}
		}
	})
}

func TestARequestThatFailedLeavesNoKey(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, -60, named("taken"))
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
		mute := request("key", "this", "")
		mute.Response = func() ([]byte, error) { return nil, broken }
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
					return f.CreateJobs(ctx, each(jobs(size, named("taken"))...), request("key", "this", ""))
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
				{"there is no answer to a create", func() error { return f.CreateJobs(ctx, each(jobs(size)...), mute) }, isBroken},
				{"there is no answer to a trigger", func() error { return f.Trigger(ctx, f.one(job), mute) }, isBroken},
				{"there is no such job", func() error {
					return f.Trigger(ctx, f.one(belfry.Job{ID: newID(), Namespace: job.Namespace}), request("key", "this", ""))
				}, isCode(belfry.NotFound)},
			} {
				if err := tt.call(); !tt.want(err) {
					t.Errorf("%s: got %v", tt.failure, err)
				}
				n := f.count(t, `SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM triggers) + (SELECT count(*) FROM requests)`)
				if before := f.answered(t, job.Namespace, "key"); before != nil || n != 1 {
					t.Errorf("%s: left %d rows and the answer %+v", tt.failure, n-1, before)
				}
			}
		}
		if err := f.CreateJobs(ctx, each(jobs(1)...), request("key", "this", "")); err != nil {
			t.Errorf("the key cannot be used after all that: %v", err)
		}
	})
}

func TestKeysOfRequestsAreForgottenInTime(t *testing.T) {
	eachVerb(t, func(t *testing.T, f *fixture, v verb, job belfry.Job) {
		if err := v.ask(f, f, job, request("key", "this", "first")); err != nil {
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
		wantRepeated(t, v.ask(f, f, job, request("key", "this", "second")), "this", "first")
		prune(2 * time.Hour)
		if before := f.answered(t, job.Namespace, "key"); before != nil {
			t.Errorf("after a week the key has the answer %+v", before)
		}
		if err := v.ask(f, f, job, request("key", "something else", "second")); err != nil {
			t.Errorf("after a week: %v", err)
		}
		f.wantDone(t, v, 2)
	})
}
