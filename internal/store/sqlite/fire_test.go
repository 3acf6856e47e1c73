package sqlite

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

// TestFireOfAnExistingRunDoesNothing fires an occurrence whose
// run is alive, as happens when the plan was restored from an older copy.
func TestFireOfAnExistingRunDoesNothing(t *testing.T) {
	s := openStore(t)
	create(t, s, newJob(t, s, s.Now().Add(-2*time.Minute), "* * * * *"))
	due := steps(t, s, 1)
	fire(t, s, due, store.FreeSlots{})
	fill(t, s, 1, `UPDATE plans SET version = ?, fired_for = NULL, nominal_at = next_at WHERE ? > 0`, due[0].Seen.Version, 1)
	again := fire(t, s, due, store.FreeSlots{Worker: register(t, s), Lanes: []string{testLane}, Free: 1})
	if again.ReadyCount() != 0 || len(again.Claimed) != 0 {
		t.Errorf("it was made again: %+v", again)
	}
	if live, settled := count(t, s, `SELECT count(*) FROM runs`), count(t, s, `SELECT count(*) FROM history`); live != 1 || settled != 0 {
		t.Errorf("there are %d live runs and %d records, wants the run alone", live, settled)
	}
}
