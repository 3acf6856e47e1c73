package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
)

func (f *fixture) revisions(t tb, job belfry.Job, before, limit int) []belfry.Revision {
	t.Helper()
	got, err := f.Revisions(ctx, job.Namespace, job.ID, before, limit)
	if err != nil {
		t.Fatalf("list revisions: %v", err)
	}
	if len(got) > limit {
		t.Fatalf("%d revisions were given, asked for %d", len(got), limit)
	}
	return got
}

var whenever = cmpopts.IgnoreFields(belfry.Revision{}, "ReplacedAt")

func TestEveryEditKeepsWhatWasBefore(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, -60, withKeys("first-{{date}}"))
		if got := f.revisions(t, job, 0, 10); len(got) != 0 {
			t.Errorf("a job that was never edited has revisions %+v", got)
		}
		const edits = 7
		var want []belfry.Revision // latest first
		for i := range edits {
			old := f.found(t, job)
			want = append([]belfry.Revision{{Number: old.Revision, Spec: old.Spec, Payload: old.Payload}}, want...)
			f.edit(t, job, revise(t, func(j *belfry.Job) {
				j.TimeoutSeconds, j.Payload = 100+i, nil
				if i%2 == 0 {
					withPayload(fmt.Sprintf(`{"n": %d}`, i))(j)
					ofWorker(fmt.Sprint("handler ", i))(j)
				}
			}))
			if i == 3 { // what makes no revision leaves none
				f.edit(t, job, pause(t))
				f.edit(t, job, resume(t))
				f.edit(t, job, retag("other"))
			}
		}
		got := f.revisions(t, job, 0, edits+1)
		for i := range got {
			if !near(*got[i].ReplacedAt, f.Now(), time.Minute) || i > 0 && got[i].ReplacedAt.After(*got[i-1].ReplacedAt) {
				t.Errorf("revision %d was replaced at %v", got[i].Number, got[i].ReplacedAt)
			}
		}
		if diff := cmp.Diff(want, got, whenever, asStored); diff != "" {
			t.Fatalf("the revisions differ (-want +got):\n%s", diff)
		}
		for limit := 1; limit <= edits; limit++ {
			var pages []belfry.Revision
			for before := 0; ; before = pages[len(pages)-1].Number {
				page := f.revisions(t, job, before, limit)
				if len(page) == 0 {
					break
				}
				pages = append(pages, page...)
			}
			if diff := cmp.Diff(want, pages, whenever, asStored); diff != "" {
				t.Errorf("pages of %d differ (-want +got):\n%s", limit, diff)
			}
		}
	})
}

func TestRevisionsAreThoseOfALiveJobOfTheNamespace(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, gone := f.created(t, -60), f.created(t, -60)
		for _, job := range []belfry.Job{job, gone} {
			f.edit(t, job, revise(t, withTimeout(5)))
		}
		f.edit(t, gone, remove(t))
		for doing, ask := range map[string]belfry.Job{
			"of a deleted job": gone, "of a foreign job": {Namespace: "theirs", ID: job.ID}, "of no job": {Namespace: job.Namespace, ID: newID()},
		} {
			_, err := f.Revisions(ctx, ask.Namespace, ask.ID, 0, 10)
			wantCode(t, doing, err, belfry.NotFound)
		}
		if got := f.revisions(t, job, 0, 10); len(got) != 1 || got[0].Number != 1 {
			t.Errorf("the revisions are %+v", got)
		}
	})
}
