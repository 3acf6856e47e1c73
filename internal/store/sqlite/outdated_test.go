package sqlite

import (
	"slices"
	"testing"

	"github.com/belfry-sh/belfry"
)

// TestALookForOutdatedPlansEnds looks for few among many: every call ends after as
// many plans as it may look at, and none is lost.
func TestALookForOutdatedPlansEnds(t *testing.T) {
	s := openStore(t)
	const look, jobs = 800, 2400
	s.scanLimit = look
	fillJobs(t, s, jobs)
	fill(t, s, 0, `UPDATE plans SET zone_version = '1999a' WHERE job_id IN (?, ?, ?)`, slice(nth(look)), slice(nth(look+1)), slice(nth(jobs)))
	var got []belfry.ID
	var after belfry.ID
	calls := 0
	for {
		due, next, err := s.PlansForZoneUpdate(ctx, allShards(s), "2000a", after, 10)
		if err != nil {
			t.Fatal(err)
		}
		calls++
		for _, d := range due {
			got = append(got, d.Plan.JobID)
		}
		if after = next; next.IsZero() {
			break
		}
	}
	if want := []belfry.ID{nth(look), nth(look + 1), nth(jobs)}; !slices.Equal(got, want) || calls != 4 { // the last finds that there are no more
		t.Errorf("in %d calls there were %v, wants %v", calls, got, want)
	}
}
