package sqlite

import (
	"database/sql"
	"strings"
	"testing"
)

// TestStatementsFindTheirRows asks SQLite how it would run each statement on the
// path of a run: none may read a whole table, and none may sort but for a merge.
func TestStatementsFindTheirRows(t *testing.T) {
	s := opened(t)
	for _, tt := range []struct {
		name, query string
		sorts       bool
	}{
		{"look up a job", selectOneJob, false},
		{"list jobs", selectJobPage, false},
		{"find where the limit is reached", selectBound, false},
		{"read upcoming plans", selectUpcoming, false},
		{"read overdue plans", selectOverdue, false},
		{"find a plan", selectPlan, false},
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
	} {
		type step struct {
			id, parent, unused int
			what               string
		}
		err := s.read(ctx, tt.name, func(x *tx) error {
			plan, err := all(x, func(rows *sql.Rows, p *step) error { return rows.Scan(&p.id, &p.parent, &p.unused, &p.what) },
				`EXPLAIN QUERY PLAN `+tt.query, make([]any, strings.Count(tt.query, "?"))...)
			for _, p := range plan {
				what, scan := strings.CutPrefix(p.what, "SCAN ")
				if scan && !mayScan(what) || !tt.sorts && strings.Contains(p.what, "TEMP B-TREE FOR ORDER BY") {
					t.Errorf("%s: %s", tt.name, p.what)
				}
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// mayScan allows for lists within a statement, and for indexes that hold only
// the few rows in question.
func mayScan(what string) bool {
	for _, list := range []string{"json_each ", "lanes", "(subquery"} {
		if strings.HasPrefix(what, list) {
			return true
		}
	}
	for _, index := range []string{"runs_running", "runs_retry", "triggers_pending"} {
		if strings.HasSuffix(what, "USING INDEX "+index) {
			return true
		}
	}
	return false
}
