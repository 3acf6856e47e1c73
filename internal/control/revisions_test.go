package control_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control.New(controltest.Open(t), plan.Defaults{})
		d := controltest.Named("report", "* * * * *")
		d.Payload = json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"first"}}`)
		job := controltest.Create(t, c, d)
		start := *job.NextRunAt
		time.Sleep(time.Second)
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) {
			d.Schedule, d.Payload = "0 * * * *", json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"second"}}`)
		})
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Name, m.Tags, m.MaxRetries = "renamed", []string{"x"}, 0 })
		revisions, err := c.Revisions(t.Context(), ns, job.ID.String(), 0, 10)
		if err != nil || len(revisions) != 2 || revisions[0].Number != 2 || revisions[0].Spec.Schedule != "0 * * * *" ||
			revisions[1].Number != 1 || string(revisions[1].Payload) != string(d.Payload) || revisions[1].ReplacedAt.IsZero() {
			t.Fatalf("got %+v, error %v", revisions, err)
		}
		if older, err := c.Revisions(t.Context(), ns, job.ID.String(), 2, 10); err != nil || len(older) != 1 || older[0].Number != 1 {
			t.Errorf("before 2 is %+v, error %v", older, err)
		}

		time.Sleep(time.Minute)
		job, err = c.Rollback(t.Context(), ns, job.ID.String(), 1)
		if err != nil || job.Revision != 4 || string(job.Payload) != string(d.Payload) || job.MaxRetries != 3 || job.Name != "renamed" || len(job.Tags) != 1 {
			t.Errorf("got %+v, error %v", job, err)
		}
		if !job.NextRunAt.Equal(start.Add(time.Minute)) || controltest.History(t, c, job.ID, start) != "" {
			t.Errorf("the next run is at %v, and there were %s", job.NextRunAt, controltest.History(t, c, job.ID, start))
		}
		same4, err := c.Rollback(t.Context(), ns, job.ID.String(), 4)
		if err != nil {
			t.Fatal(err)
		}
		same(t, same4, job)
		if same1, err := c.Rollback(t.Context(), ns, job.ID.String(), 1); err != nil || same1.Revision != 4 {
			t.Errorf("a second time made revision %d, error %v", same1.Revision, err)
		}
		for _, unknown := range []int{-1, 0, 5, 1 << 40} {
			_, err := c.Rollback(t.Context(), ns, job.ID.String(), unknown)
			codeOf(t, err, belfry.NotFound)
		}
		_, err = c.Rollback(t.Context(), "elsewhere", job.ID.String(), 1)
		codeOf(t, err, belfry.NotFound)
		_, err = c.Revisions(t.Context(), "elsewhere", job.ID.String(), 0, 1)
		codeOf(t, err, belfry.NotFound)
	})
}

func TestRollbackToAnInstantThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control.New(controltest.Open(t), plan.Defaults{})
		job := controltest.Create(t, c, controltest.Input(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
		controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Schedule = "@daily" })
		time.Sleep(3 * time.Hour)
		_, err := c.Rollback(t.Context(), ns, job.ID.String(), 1)
		oneError(t, err, "schedule", "is over")
	})
}
