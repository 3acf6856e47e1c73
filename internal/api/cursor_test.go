package api

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

func TestACursorLeadsBackToItsPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var run belfry.Run
		copy(run.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		run.ScheduledAt = time.UnixMicro(rapid.Int64Range(-1<<52, 1<<52).Draw(t, "at")).UTC()
		var runs control.RunPage
		if err := readRunCursor(runsAfter(run), &runs); err != nil || runs.BeforeID != run.ID || !runs.BeforeAt.Equal(run.ScheduledAt) {
			t.Fatalf("got %+v, error %v", runs, err)
		}
		var jobs control.Page
		if err := readJobCursor(jobsAfter(belfry.Job{ID: run.ID}), &jobs); err != nil || jobs.After != run.ID {
			t.Fatalf("got %+v, error %v", jobs, err)
		}
		if readJobCursor(runsAfter(run), &jobs) == nil || readRunCursor(jobsAfter(belfry.Job{ID: run.ID}), &runs) == nil {
			t.Fatal("a cursor fits another list")
		}
	})
}

func TestAWrongCursorIsRefused(t *testing.T) {
	id := belfry.NewID(time.Now())
	good := jobsAfter(belfry.Job{ID: id})
	later := encodeCursor(jobCursor+1, id[:]) // of another version
	for _, text := range []string{later, "x", "====", good + "A", good[1:], "0" + good, good + "=", " " + good, "\x00"} {
		var page control.Page
		if readJobCursor(text, &page) == nil || !page.After.IsZero() {
			t.Errorf("%q was read as %v", text, page.After)
		}
	}
}
