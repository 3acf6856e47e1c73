package sqlite

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

type statement struct {
	name, query string
	sorts       bool
}

// statements are those on the path of a run, and whether they sort.
var statements = []statement{
	{"look up a name", translate(sqlstore.FindName), false},
	{"look up a request", translate(sqlstore.FindRequest), false},
	{"list revisions", translate(sqlstore.ListRevisions), false},
	{"prune requests", pruneRequests, false},
	{"look up a job", selectJob, false},
	{"look up last results", selectResults, true}, // of the live runs of a job
	{"read upcoming plans", selectUpcoming, false},
	{"look up a plan", translate(sqlstore.FindPlans), false},
	{"count the jobs of a namespace", `SELECT count(*) FROM (SELECT 1` + scanNamespace + `)`, false},
	{"read the plans of a namespace", plannedOf + scanNamespace + `)`, false},
	{"read the plans of a queue", plannedOf + scanQueue + `)`, false},
	{"find the jobs of a sample", selectRowids, false},
	{"sample plans", samplePlans, false},
	{"find the last plan to read for a zone update", translate(sqlstore.FindZoneFloor), false},
	{"read plans for a zone update", translate(sqlstore.ListZoneUpdate), false},
	{"read pending triggers", translate(sqlstore.ListPendingTriggers), false},
	{"promote retries", promoteRetries, false},
	{"find the next retry", selectNextRetry, false},
	{"count ready runs", translate(sqlstore.CountReady), false},
	{"advance a plan", advancePlan, false},
	{"find ready runs", selectReady, false},
	{"read a claimed run", selectClaimed, false},
	{"claim a run", claimRun, false},
	{"succeed", settleSuccess, false},
	{"fail", selectHeld + fence, false},
	{"requeue", requeueRun, false},
	{"die", settleDead, false},
	{"read the runs of a worker", selectHeld + whereWorker, false},
	{"find runs of lost workers", selectHeld + whereWorkerLost, false},
	{"find runs past their deadline", selectHeld + whereDeadlinePassed, false},
	{"look up a run", translate(sqlstore.FindRun), true}, // of one id
	{"list the runs of a job", translate(sqlstore.ListJobRuns), true},
	{"read attempts", translate(sqlstore.ListAttempts), false},
	{"prune history", pruneHistory, false},
	{"prune triggers", pruneTriggers, false},
	{"find old attempts", selectOldAttempts, false},
	{"prune an attempt", pruneAttempt, false},
	{"find deleted jobs", selectDeletedJobs, false},
	{"look at a deleted job", selectDeletedSpec, false},
	{"look where to stop reading the runs of a job", translate(sqlstore.FindJobFloor), true},
	{"look for live runs of a job", jobHasLiveRun, false},
	{"look for a live run", runIsLive, false},
	{"delete a run", deleteRun, false},
	{"count waiting runs", countWaiting, false},
	{"promote a waiting run", promoteFirstWaiting, false},
	{"promote all waiting runs of a job", promoteAllWaiting, false},
	{"find runs that wait for nothing", selectWaitingJobs, false},
	{"look for a key", keyIsTaken, false},
	{"record a key", insertKey, false},
	{"record the success of a key", succeedKey, false},
	{"cancel", settleCancelled, false},
	{"request to cancel", requestCancel, false},
	{"cancel the runs of a job", cancelJobUnheld, false},
	{"delete the runs of a job", deleteJobUnheld, false},
	{"request to cancel the running runs of a job", requestJobCancel, false},
	{"cancel a trigger", cancelTrigger + triggerOfRun, false},
	{"cancel the triggers of a job", cancelTrigger + triggersOfJob, false},
	{"read the cancelled runs of a worker", selectCancelled, false},
	{"find runs that were cancelled long ago", selectHeld + whereCancelOverdue, false},
	{"archive a deleted job", archiveDeleted, false},
	{"find one-offs to archive", selectArchiveCandidates, false},
	{"look up an archived job", selectEndedJob, false},
	{"look up an instant", translate(sqlstore.FindRunsAt), false},
	{"look up what a run waits for", translate(sqlstore.FindWait), false},
	{"count the runs ahead", translate(sqlstore.CountAhead), false},
	{"find the runs before", translate(sqlstore.ListBefore), true}, // of one job
	{"look up a dead letter", translate(sqlstore.FindDeadLetter), false},
	{"look up dead letters to redrive", translate(sqlstore.FindRedriven), true}, // few
	{"redrive", translate(sqlstore.AddRedriven), false},
	{"look up dead letters to discard", translate(sqlstore.ListDiscarded), true}, // few
	{"discard", translate(sqlstore.AddDiscarded), false},
	{"list events", translate(sqlstore.SelectEvents + `WHERE namespace = $1 AND id < $2 ORDER BY namespace DESC, id DESC LIMIT $3`), false},
	{"list audit entries", translate("SELECT id FROM belfry.audit WHERE " + sqlstore.AuditScan(belfry.AuditFilter{}) + " LIMIT $4"), false},
	{"list all audit entries", translate("SELECT id FROM belfry.audit WHERE " + sqlstore.AuditScan(belfry.AuditFilter{Scope: belfry.AuditAll}) + " LIMIT $4"), false},
	{"list the audit entries of a job", translate("SELECT id FROM belfry.audit WHERE " + sqlstore.AuditScan(belfry.AuditFilter{JobID: belfry.ID{1}}) + " LIMIT $4"), false},
	{"find the import of a job", translate(sqlstore.FindImport), false},
	{"prune audit entries", translate(sqlstore.PruneAudit), false},
	{"prune runs with a retention of their own", pruneRetained, false},
	{"prune their attempts", pruneRetainedAttempts, false},
	{"prune their logs", pruneRetainedLogs, false},
	{"look for the holder of a log", selectLogShard, false},
	{"delete pieces of a log", deleteCoveredLogs, false},
	{"read a log", translate(sqlstore.ReadLog), false},
	{"find old logs", selectOldLogs, false},
	{"prune a log", pruneLog, false},
	{"prune keys", pruneKeys, false},
	{"prune events", pruneEvents, false},
	{"find old archived jobs", selectEndedBefore, false},
	{"find archived jobs with a retention of their own", selectEndedRetained, false},
	{"find jobs to purge", selectPurgedJobs, false},
	{"purge attempts", purgeAttempts, true}, // of one job
	{"purge history", purgeHistory, true},
	{"purge attempts of dead letters", purgeDeadAttempts, true},
	{"purge logs", purgeLogs, true},
	{"purge logs of dead letters", purgeDeadLogs, true},
	{"purge dead letters", purgeDead, true},
}

// batchStatements are those for many rows, in all their sizes.
func batchStatements() (all []statement) {
	for name, batch := range map[string]batchStatement{
		"find steps to apply one by one": findNotPlain, "advance plans": advancePlans, "insert runs": insertRuns, "read payloads": selectPayloads,
		"succeed": succeedRuns, "find results to settle one by one": findOthers, "delete runs": deleteRuns,
		"archive one-offs": archiveFinished, "delete jobs": deleteJobs, "delete plans": deletePlans,
	} {
		for rows, query := range batch {
			all = append(all, statement{fmt.Sprintf("%s (%d)", name, rows), query, false})
		}
	}
	return all
}

// TestStatementsUseIndexes asks SQLite how it would run each statement on the path of
// a run: none may scan a whole table, and none may sort but for a merge.
func TestStatementsUseIndexes(t *testing.T) {
	s := openStore(t)
	for _, tt := range append(statements, batchStatements()...) {
		for _, step := range explain(t, s, tt.query) {
			table, scan := strings.CutPrefix(step, "SCAN ")
			if scan && !mayScan(table) || !tt.sorts && strings.Contains(step, "TEMP B-TREE FOR ORDER BY") {
				t.Errorf("%s: %s", tt.name, step)
			}
		}
	}
}

// TestDeadLettersScanTheirIndex expects a page of dead letters to be read along its index,
// with or without a search for an error.
func TestDeadLettersScanTheirIndex(t *testing.T) {
	s := openStore(t)
	for _, f := range []belfry.DeadFilter{{}, {Error: "x"}} {
		if _, err := s.ListDeadLetters(ctx, "default", f, store.Page{Limit: 10, After: store.Position{At: s.Now()}}); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	translations.Range(func(sql, translated any) bool {
		if strings.HasPrefix(sql.(string), "/* list dead */") {
			seen++
			if steps := strings.Join(explain(t, s, translated.(string)), "\n"); !strings.Contains(steps, "SEARCH x USING INDEX dead_list (namespace=? AND (died_at,id)<(?,?))") {
				t.Errorf("%s\n%s", translated, steps)
			}
		}
		return true
	})
	if seen < 2 {
		t.Errorf("%d statements list dead letters", seen)
	}
}

// TestWaitingRunsAreNotScanned expects the search for a run that does not wait to use
// the index: a job may have thousands of waiting runs.
func TestWaitingRunsAreNotScanned(t *testing.T) {
	s := openStore(t)
	for _, query := range []string{promoteFirstWaiting, selectWaitingJobs} {
		steps := strings.Join(explain(t, s, query), "\n")
		if !strings.Contains(steps, "SEARCH r USING COVERING INDEX runs_job (job_id=? AND state=?)") {
			t.Errorf("%s\n%s", query, steps)
		}
	}
}

// TestListsScanTheirIndexes expects each statement of a list to begin on the index
// that is meant for it, and to sort nothing.
func TestListsScanTheirIndexes(t *testing.T) {
	s := openStore(t)
	for _, scan := range []*jobScan{&allJobs, &pausedJobs, &jobsByQueue, &jobsByType, &jobsByHandler, &jobsWithRuns, &unplannedJobs, &failingJobs, &endedJobs} {
		wantIndex(t, s, scan.index, scan.floor, scan.page)
	}
	if first := explain(t, s, dueJobs.page)[0]; !strings.Contains(first, "plans_due") {
		t.Errorf("due jobs: %s", first)
	}
}

// TestRunListsScanTheirIndexes expects each statement of a list of runs to begin on the index
// that is meant for it, and to sort nothing but the running ones.
func TestRunListsScanTheirIndexes(t *testing.T) {
	s := openStore(t)
	for _, status := range []belfry.RunStatus{"", belfry.RunRunning} {
		if _, err := s.ListRuns(ctx, "default", belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: status}}, store.Page{Limit: 10}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	translations.Range(func(sql, translated any) bool {
		if !strings.HasPrefix(sql.(string), "/* list runs */") {
			return true
		}
		steps := explain(t, s, translated.(string))
		plan := strings.Join(steps, "\n")
		for _, index := range []string{"PRIMARY KEY (id<?)", "sqlite_autoindex_dead_1 (id<?)", "history_list (namespace=? AND id<?)", "triggers_run (run_id<?)", "runs_running"} {
			if strings.Contains(plan, index) {
				seen[index]++
				if index != "runs_running" && strings.Contains(plan, "TEMP B-TREE") {
					t.Errorf("%s\n%s", translated, plan)
				}
				return true
			}
		}
		t.Errorf("%s\n%s", translated, plan)
		return true
	})
	if len(seen) != 5 {
		t.Errorf("the indexes that are used are %v", seen)
	}
}

func wantIndex(t *testing.T, s *Store, index string, queries ...string) {
	t.Helper()
	for _, query := range queries {
		steps := explain(t, s, query)
		sorts := false
		for _, step := range steps {
			sorts = sorts || strings.HasPrefix(step, "USE TEMP B-TREE FOR ORDER BY") || strings.HasPrefix(step, "USE TEMP B-TREE FOR GROUP BY")
		}
		if !strings.HasPrefix(steps[0], "SEARCH ") || !strings.Contains(steps[0], index) || sorts {
			t.Errorf("a scan of %s:\n%s\n%s", index, query, strings.Join(steps, "\n"))
		}
	}
}

// explain returns the steps of SQLite's plan for a statement.
func explain(t *testing.T, s *Store, query string) []string {
	t.Helper()
	args := make([]any, strings.Count(query, "?"))
	for _, name := range []string{"namespace", "queue", "type", "handler", "tags", "tag", "search", "status", "state", "after", "floor", "limit", "skip",
		"now", "job", "at", "id", "since", "until", "fingerprint", "reason", "error", "before", "backfill", "shards"} {
		args = append(args, sql.Named(name, nil))
	}
	steps, err := readValue(ctx, s, "explain", func(x *tx) ([]string, error) {
		return all(x, func(rows *sql.Rows, step *string) error {
			var id, parent, unused int
			return rows.Scan(&id, &parent, &unused, step)
		}, `EXPLAIN QUERY PLAN `+query, args...)
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return steps
}

// mayScan allows for lists within a statement, and for indexes that contain only
// the few rows in question.
func mayScan(step string) bool {
	for _, list := range []string{"json_each ", "lanes", "waiting", "(subquery", "CONSTANT ROW", "time", "step", "what", "result", "found"} {
		if strings.HasPrefix(step, list) {
			return true
		}
	}
	if strings.HasSuffix(step, " CONSTANT ROWS") || strings.HasSuffix(step, "-ROW VALUES CLAUSE") {
		return true
	}
	for _, index := range []string{"runs_running", "runs_retry", "runs_cancelled", "triggers_pending"} {
		if strings.HasSuffix(step, "USING INDEX "+index) {
			return true
		}
	}
	return false
}
