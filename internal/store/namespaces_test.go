package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func (f *fixture) setQuota(t tb, namespace string, q belfry.Quota) belfry.Namespace {
	t.Helper()
	n, err := f.EditNamespace(ctx, namespace, func(belfry.Quota) (belfry.Quota, error) { return q, nil })
	if err != nil {
		t.Fatalf("set the quota of %s: %v", namespace, err)
	}
	return n
}

func (f *fixture) usage(t tb, namespace string) belfry.Usage {
	t.Helper()
	usage, err := f.NamespaceUsage(ctx, namespace)
	if err != nil {
		t.Fatalf("count usage: %v", err)
	}
	return usage[namespace]
}

func TestNamespacesAreDeclaredEditedAndDeleted(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		at := f.Now().UTC().Truncate(time.Microsecond)
		want := belfry.Namespace{Name: "billing", CreatedAt: at, UpdatedAt: at,
			Quota: belfry.Quota{MaxJobs: 3, MinIntervalSeconds: 0.5, MaxRunning: 2, Weight: 7, MaxStoredBytes: 1 << 40, RateLimit: 1.5}}
		for range 2 { // Repeating a call does nothing.
			if err := f.CreateNamespace(ctx, want); err != nil {
				t.Fatal(err)
			}
		}
		other := want
		other.CreatedAt = at.Add(time.Second)
		wantCode(t, "create it again", f.CreateNamespace(ctx, other), belfry.Conflict)
		list := func(want ...belfry.Namespace) {
			t.Helper()
			got, err := f.Namespaces(ctx)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		}
		list(want)
		if q, err := f.Quota(ctx, "billing"); err != nil || q != want.Quota {
			t.Errorf("the quota is %+v, error %v", q, err)
		}
		if q, err := f.Quota(ctx, "ops"); err != nil || q != (belfry.Quota{}) {
			t.Errorf("the quota of a namespace without a row is %+v, error %v", q, err)
		}

		refused := errors.New("refused")
		if _, err := f.EditNamespace(ctx, "ops", func(q belfry.Quota) (belfry.Quota, error) { return q, refused }); err != refused {
			t.Errorf("got %v, want the error of the edit", err)
		}
		list(want)
		ops := f.setQuota(t, "ops", belfry.Quota{MaxRunning: 5})
		list(want, ops)
		edited := f.setQuota(t, "billing", belfry.Quota{Weight: 2})
		if edited.Weight != 2 || edited.MaxJobs != 0 || !edited.CreatedAt.Equal(at) || edited.UpdatedAt.Before(at) {
			t.Errorf("edited: %+v", edited)
		}
		if q, _ := f.Quota(ctx, "billing"); q.Weight != 2 {
			t.Errorf("an own change does not count at once: %+v", q)
		}

		job := f.createJob(t, 1, withNamespace("billing"))
		wantCode(t, "delete it with a job", f.DeleteNamespace(ctx, "billing"), belfry.Conflict)
		list(edited, ops)
		f.edit(t, job, deleteJob(t))
		for range 2 {
			if err := f.DeleteNamespace(ctx, "billing"); err != nil {
				t.Fatal(err)
			}
		}
		list(ops)
	})
}

func TestUsageCountsJobsBytesAndRunningRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.createJob(t, 1, withNamespace("ours"), withPayload(`"`+strings.Repeat("ü", 5000)+`"`))
		deleted := f.createJob(t, 1, withNamespace("ours"))
		f.edit(t, deleted, deleteJob(t))
		f.startRun(t, withNamespace("theirs"))
		bytes := f.count(t, `SELECT length(spec) FROM jobs WHERE namespace = 'ours' AND state <> 'deleted'`) + 10_002
		if got, want := f.usage(t, "ours"), (belfry.Usage{Jobs: 1, StoredBytes: bytes}); got != want {
			t.Errorf("usage is %+v, want %+v", got, want)
		}
		all, err := f.NamespaceUsage(ctx, "")
		if err != nil || len(all) != 2 || all["ours"] != f.usage(t, "ours") || all["theirs"].Running != 1 || all["theirs"].Jobs != 1 {
			t.Errorf("usage of all: %+v, error %v", all, err)
		}
	})
}

// eachSettled tests quotas of which all nodes have just heard, and old ones: jobs are then counted near the limit only.
func eachSettled(t *testing.T, test func(t *testing.T, f *fixture, settle func())) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprintf("settled=%v", settled), func(t *testing.T) {
			eachStore(t, func(t *testing.T, f *fixture) {
				test(t, f, func() {
					if settled {
						f.backdate(t, 2*store.QuotaSettleTime, "namespaces", "limited_at", "")
					}
				})
			})
		})
	}
}

func TestMaxJobsIsExactWhileManyNodesCreate(t *testing.T) {
	eachSettled(t, func(t *testing.T, f *fixture, settle func()) {
		const limit = 40
		f.createJobs(t, f.job(f.minutesAgo(1), withNamespace("ours")), f.job(f.minutesAgo(1), withNamespace("ours"))) // before there is a quota
		f.setQuota(t, "ours", belfry.Quota{MaxJobs: limit})
		settle()
		var wg sync.WaitGroup
		var created atomic.Int64
		for i, node := range f.nodes(t, 3) {
			for range 2 {
				wg.Go(func() {
					for range limit / 4 {
						batch := make([]store.NewJob, 1+i)
						for j := range batch {
							batch[j] = node.job(f.minutesAgo(1), withNamespace("ours"))
						}
						switch err := node.CreateJobs(ctx, jobSeq(batch...), nil); {
						case err == nil:
							created.Add(int64(len(batch)))
						case belfry.CodeOf(err) != belfry.QuotaExceeded:
							t.Errorf("create jobs: %v", err)
						}
					}
				})
			}
		}
		wg.Wait()
		for f.CreateJobs(ctx, jobSeq(f.job(f.minutesAgo(1), withNamespace("ours"))), nil) == nil { // until it is full
			created.Add(1)
		}
		if n := f.usage(t, "ours").Jobs; n != limit || created.Load() != limit-2 {
			t.Errorf("there are %d jobs, and %d were acknowledged; the quota is %d with 2 before", n, created.Load(), limit)
		}
		f.createJob(t, 1, withNamespace("theirs"))
	})
}

func TestAFullNamespaceHasRoomAgainWhenJobsEnd(t *testing.T) {
	eachSettled(t, func(t *testing.T, f *fixture, settle func()) {
		f.setQuota(t, "ours", belfry.Quota{MaxJobs: 2})
		settle()
		create := func() error {
			return f.CreateJobs(ctx, jobSeq(f.job(f.minutesAgo(1), withNamespace("ours"))), nil)
		}
		first := f.job(f.minutesAgo(1), withNamespace("ours"))
		f.createJobs(t, first)
		f.createJob(t, 1, withNamespace("ours"))
		err := create()
		wantCode(t, "create a third job", err, belfry.QuotaExceeded)
		for _, part := range []string{"max_jobs", "ours", "2 jobs", "has 2", "admin", "--max-jobs"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error %v does not say %q", err, part)
			}
		}
		f.createJobs(t, first) // The reply to the first call was lost.
		f.edit(t, first.Job, deleteJob(t))
		if err := create(); err != nil {
			t.Errorf("after a deletion: %v", err)
		}
		wantCode(t, "create one more", create(), belfry.QuotaExceeded)
		f.setQuota(t, "ours", belfry.Quota{MaxJobs: 3})
		if err := create(); err != nil {
			t.Errorf("after the quota was raised: %v", err)
		}
		f.setQuota(t, "ours", belfry.Quota{MaxJobs: 1}) // What is there stays.
		wantCode(t, "create beyond a lower quota", create(), belfry.QuotaExceeded)
		f.setQuota(t, "ours", belfry.Quota{})
		many := make([]store.NewJob, 60) // more than one statement takes
		for i := range many {
			many[i] = f.job(f.minutesAgo(1), withNamespace("ours"))
		}
		f.createJobs(t, many...)
		f.setQuota(t, "ours", belfry.Quota{MaxJobs: 63})
		settle()
		for i := range many {
			many[i] = f.job(f.minutesAgo(1), withNamespace("ours"))
		}
		wantCode(t, "import beyond the quota", f.CreateJobs(ctx, jobSeq(many...), nil), belfry.QuotaExceeded)
		if n := f.usage(t, "ours").Jobs; n != 63 {
			t.Errorf("%d jobs, want 63: an import is all or nothing", n)
		}
	})
}

func TestMaxStoredBytesHoldsForNewAndEditedJobs(t *testing.T) {
	eachSettled(t, func(t *testing.T, f *fixture, settle func()) {
		payload := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
		job := f.createJob(t, 1, withNamespace("ours"), withPayload(payload(1000)))
		overhead := f.usage(t, "ours").StoredBytes - 1000
		f.setQuota(t, "ours", belfry.Quota{MaxStoredBytes: 2*overhead + 3000})
		settle()
		grow := func(n int) error {
			_, err := f.EditJob(ctx, "ours", job.ID, revise(t, func(j *belfry.Job) { j.Payload = []byte(payload(n)) }))
			return err
		}
		if err := grow(2000); err != nil {
			t.Errorf("grow within the quota: %v", err)
		}
		create := func(n int) error {
			return f.CreateJobs(ctx, jobSeq(f.job(f.minutesAgo(1), withNamespace("ours"), withPayload(payload(n)))), nil)
		}
		wantCode(t, "create beyond the quota", create(1001), belfry.QuotaExceeded)
		if err := create(1000); err != nil {
			t.Errorf("create up to the quota: %v", err)
		}
		wantCode(t, "grow beyond the quota", grow(2001), belfry.QuotaExceeded)
		if err := grow(1500); err != nil {
			t.Errorf("shrink: %v", err)
		}
		if err := grow(2000); err != nil {
			t.Errorf("grow again: %v", err)
		}
		if got, want := f.usage(t, "ours"), (belfry.Usage{Jobs: 2, StoredBytes: 2*overhead + 3000}); got != want {
			t.Errorf("usage is %+v, want %+v", got, want)
		}
	})
}
