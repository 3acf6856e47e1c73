package sqlite

import (
	"database/sql"
	"strings"
	"testing"
)

// statements are those on the path of a run, and whether they sort.
var statements = []struct {
	name, query string
	sorts       bool
}{
	{"look up a name", selectNamedJob, false},
	{"look up a request", selectRequest, false},
	{"list revisions", selectRevisions, false},
	{"prune requests", pruneRequests, false},
	{"look up a wish", fromTriggers + whereWish, false},
	{"look up a job", selectOneJob, false},
	{"find where the limit is reached", selectBound, false},
	{"read upcoming plans", selectUpcoming, false},
	{"read overdue plans", selectOverdue, false},
	{"find a plan", selectPlan, false},
	{"find the last plan to look at", selectOutdatedFloor, false},
	{"read outdated plans", selectOutdated, false},
	{"read triggers", selectWishes, false},
	{"promote", promote, false},
	{"find the next retry", selectRetry, false},
	{"count ready runs", countReady, false},
	{"advance a plan", advance, false},
	{"find ready runs", selectReady, false},
	{"read the work", selectWork, false},
	{"take a run", takeRun, false},
	{"succeed", settleSuccess, false},
	{"fail", selectHeld + fence, false},
	{"wait", settleWaiting, false},
	{"die", settleDead, false},
	{"find lost runs", selectHeld + whereLost, false},
	{"find late runs", selectHeld + whereLate, false},
	{"look up a dead run", fromDead + whereRun, false},
	{"look up a settled run", fromHistory + whereRun + `ORDER BY r.settled_at DESC LIMIT 1`, true}, // of one id
	{"list the runs of a job", selectJobRuns, true},
	{"read attempts", selectAttempts, false},
	{"prune history", pruneHistory, false},
	{"prune triggers", pruneTriggers, false},
	{"find old attempts", selectOldAttempts, false},
	{"prune an attempt", pruneAttempt, false},
	{"find deleted jobs", selectDeletedJobs, false},
	{"prune a job", pruneJob, false},
	{"look for live runs", hasLive, false},
	{"look for a live run", isLive, false},
	{"remove a run", deleteRun, false},
	{"take a run that leaves nothing", deletePlain, false},
	{"count waiting runs", countWaiting, false},
	{"let a waiting run go", goAhead, false},
	{"find runs that wait for nothing", selectHeldUp, false},
	{"look for a key", selectKey, false},
	{"note a key", insertKey, false},
	{"note a success", succeedKey, false},
	{"cancel", settleCancelled, false},
	{"cancel a running run", markCancelled, false},
	{"cancel the runs of a job", cancelUnheld, false},
	{"remove the runs of a job", deleteUnheld, false},
	{"cancel the running runs of a job", markHeld, false},
	{"cancel a wish", cancelWish + ofWish, false},
	{"cancel the wishes of a job", cancelWish + ofJobWishes, false},
	{"tell of cancelled runs", selectCancelled, false},
	{"find cancelled runs", selectHeld + whereCancelled, false},
	{"look at a one-off", selectOver, false},
	{"end a one-off", insertEnded, false},
	{"find one-offs that may be over", selectPerhapsOver, false},
	{"look up an ended job", selectOneEnded, false},
	{"look up the name of an ended job", selectNamedEnded, false},
	{"look up an instant", selectDecided, false},
	{"look at a live run", selectWaiting, false},
	{"count the runs ahead", countAhead, false},
	{"find the runs before", selectBefore, true}, // of one job
	{"look up a dead letter", selectDeadLetter, false},
	{"list dead letters", selectDeadLetters, false},
	{"look at what is redriven", selectRevival, false},
	{"redrive", revive, false},
	{"bury", deleteDead, false},
	{"discard", discard, false},
	{"list events", selectEvents, false},
	{"prune what has a retention of its own", pruneKept, false},
	{"prune its attempts", pruneAttemptsOfKept, false},
	{"prune keys", pruneKeys, false},
	{"prune events", pruneEvents, false},
	{"find ended jobs", selectEndedBefore, false},
	{"find ended jobs with a retention", selectEndedKept, false},
	{"find purged jobs", selectPurged, false},
	{"purge attempts", purgeAttempts, true}, // of one job
	{"purge history", purgeHistory, true},
	{"purge attempts of dead letters", purgeDeadAttempts, true},
	{"purge dead letters", purgeDead, true},
}

// TestStatementsFindTheirRows asks SQLite how it would run each statement on the
// path of a run: none may read a whole table, and none may sort but for a merge.
func TestStatementsFindTheirRows(t *testing.T) {
	s := opened(t)
	for _, tt := range statements {
		for _, what := range explain(t, s, tt.query) {
			table, scan := strings.CutPrefix(what, "SCAN ")
			if scan && !mayScan(table) || !tt.sorts && strings.Contains(what, "TEMP B-TREE FOR ORDER BY") {
				t.Errorf("%s: %s", tt.name, what)
			}
		}
	}
}

// TestManyWaitingRunsAreNotLookedAt expects whatever looks for a run of a job that
// does not wait to pass by those that do: there may be thousands.
func TestManyWaitingRunsAreNotLookedAt(t *testing.T) {
	s := opened(t)
	for _, query := range []string{goAhead, selectHeldUp} {
		steps := strings.Join(explain(t, s, query), "\n")
		if !strings.Contains(steps, "SEARCH r USING COVERING INDEX runs_job (job_id=? AND state=?)") {
			t.Errorf("%s\n%s", query, steps)
		}
	}
}

// TestListsWalkAlongTheirIndexes looks at each statement of a list: it begins on
// the index that was meant for it, and sorts nothing.
func TestListsWalkAlongTheirIndexes(t *testing.T) {
	s := opened(t)
	for _, w := range []walk{alongJobs, alongPaused, alongQueue, alongType, alongHandler, alongRuns, alongUnplanned, alongEnded} {
		wantWalk(t, s, w.index, w.floor())
		wantWalk(t, s, w.index, w.page())
	}
	for index, h := range map[string]shelf{"PRIMARY KEY": liveShelf, "sqlite_autoindex_dead_1": deadShelf, "history_list": historyShelf, "triggers_run": wishShelf} {
		wantWalk(t, s, index, h.floor())
		wantWalk(t, s, index, h.page())
	}
	if first := explain(t, s, runningShelf.page())[0]; !strings.Contains(first, "runs_running") {
		t.Errorf("running runs: %s", first)
	}
}

func wantWalk(t *testing.T, s *Store, index, query string) {
	t.Helper()
	steps := explain(t, s, query)
	first, sorted := steps[0], 0
	for _, what := range steps {
		if strings.HasPrefix(what, "USE TEMP B-TREE FOR ORDER BY") || strings.HasPrefix(what, "USE TEMP B-TREE FOR GROUP BY") {
			sorted++
		}
	}
	if !strings.HasPrefix(first, "SEARCH ") || !strings.Contains(first, index) || sorted > 0 {
		t.Errorf("a walk along %s:\n%s\n%s", index, query, strings.Join(steps, "\n"))
	}
}

// explain gives the steps of SQLite's plan for a statement.
func explain(t *testing.T, s *Store, query string) (steps []string) {
	t.Helper()
	args := make([]any, strings.Count(query, "?"))
	for _, name := range []string{"namespace", "queue", "type", "handler", "tags", "tag", "search", "status", "state", "after", "floor", "limit", "look",
		"now", "job", "at", "id", "since", "until", "fingerprint", "reason", "error", "before"} {
		args = append(args, sql.Named(name, nil))
	}
	err := s.read(ctx, "explain", func(x *tx) (err error) {
		steps, err = all(x, func(rows *sql.Rows, what *string) error {
			var id, parent, unused int
			return rows.Scan(&id, &parent, &unused, what)
		}, `EXPLAIN QUERY PLAN `+query, args...)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return steps
}

// mayScan allows for lists within a statement, and for indexes that hold only
// the few rows in question.
func mayScan(what string) bool {
	for _, list := range []string{"json_each ", "lanes", "held", "(subquery", "CONSTANT ROW"} {
		if strings.HasPrefix(what, list) {
			return true
		}
	}
	for _, index := range []string{"runs_running", "runs_retry", "runs_cancelled", "triggers_pending"} {
		if strings.HasSuffix(what, "USING INDEX "+index) {
			return true
		}
	}
	return false
}
