package control_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestRevisionsAndRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := controltest.Open(t)
		c := control.New(st, plan.Defaults{})
		d := controltest.Named("report", "* * * * *")
		d.Payload = json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"first"}}`)
		job := controltest.Create(t, c, d)
		start := *job.NextRunAt
		time.Sleep(time.Second)
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) {
			m.Schedule, m.Payload = "0 * * * *", json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"second"}}`)
		})
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Name, m.Tags, m.MaxRetries = "renamed", []string{"x"}, belfry.Some(0) })
		revisions, next, err := c.Revisions(t.Context(), ns, job.ID.String(), store.Page{Limit: 10})
		if err != nil || next != (store.Position{}) || len(revisions) != 3 || revisions[0].Number != 3 || revisions[0].ReplacedAt != nil ||
			revisions[1].Number != 2 || revisions[1].Schedule != "0 * * * *" || revisions[1].ReplacedAt == nil ||
			revisions[2].Number != 1 || string(revisions[2].Payload) != string(job.Payload) {
			t.Fatalf("got %+v, error %v", revisions, err)
		}
		for i, page := 0, (store.Page{Limit: 1}); i < 3; i++ {
			list, next, err := c.Revisions(t.Context(), ns, "renamed", page)
			if err != nil || len(list) != 1 || list[0].Number != 3-i || (next == store.Position{}) != (i == 2) {
				t.Fatalf("page %d is %+v, then %v, error %v", i, list, next, err)
			}
			page.After = next
		}

		time.Sleep(time.Minute)
		job, err = c.Rollback(t.Context(), ns, job.ID.String(), belfry.Rollback{Revision: 1})
		stored, _ := st.Job(t.Context(), ns, job.ID)
		if err != nil || job.Revision != 4 || string(stored.Payload) != string(d.Payload) || job.MaxRetries.Value() != 3 || job.Name != "renamed" || len(job.Tags) != 1 {
			t.Errorf("got %+v, error %v", job, err)
		}
		if !job.NextRunAt.Equal(start.Add(time.Minute)) || controltest.History(t, c, job.ID, start) != "" {
			t.Errorf("the next run is at %v, and there were %s", job.NextRunAt, controltest.History(t, c, job.ID, start))
		}
		same4, err := c.Rollback(t.Context(), ns, job.ID.String(), belfry.Rollback{Revision: 4})
		if err != nil {
			t.Fatal(err)
		}
		sameJob(t, same4, job)
		if same1, err := c.Rollback(t.Context(), ns, job.ID.String(), belfry.Rollback{Revision: 1}); err != nil || same1.Revision != 4 {
			t.Errorf("a second time made revision %d, error %v", same1.Revision, err)
		}
		for _, unknown := range []int{-1, 0, 5, 1 << 40} {
			_, err := c.Rollback(t.Context(), ns, job.ID.String(), belfry.Rollback{Revision: unknown})
			codeOf(t, err, belfry.NotFound)
		}
		_, err = c.Rollback(t.Context(), "elsewhere", job.ID.String(), belfry.Rollback{Revision: 1})
		codeOf(t, err, belfry.NotFound)
		_, _, err = c.Revisions(t.Context(), "elsewhere", job.ID.String(), store.Page{Limit: 1})
		codeOf(t, err, belfry.NotFound)
	})
}

func TestRollbackToAnInstantThatHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(t)
		job := controltest.Create(t, c, controltest.Input(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
		controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Schedule = "@daily" })
		time.Sleep(3 * time.Hour)
		_, err := c.Rollback(t.Context(), ns, job.ID.String(), belfry.Rollback{Revision: 1})
		oneError(t, err, "schedule", "has passed")
	})
}
