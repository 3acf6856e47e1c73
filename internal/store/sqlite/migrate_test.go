package sqlite

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// oldRows are what a program that knew only the first migration may have left: a
// job in every shape, a run in every place, and a spec that nobody can read.
const oldRows = `
CREATE TABLE migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT;
INSERT INTO migrations VALUES (1, 0);
INSERT INTO settings VALUES ('shards', '64');
INSERT INTO jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at) VALUES
  (x'01000000000000000000000000000000', 0, 'default', 'report', 2, 'active', '{"type":"http","schedule":"* * * * *","timezone":"UTC","queue":"bulk"}', '{"url":"http://localhost"}', 1000000, 1000000),
  (x'02000000000000000000000000000000', 0, 'default', NULL, 1, 'paused', '{"type":"http","schedule":"* * * * *","timezone":"UTC","queue":"default"}', NULL, 1000000, 1000000),
  (x'03000000000000000000000000000000', 0, 'default', NULL, 1, 'deleted', '{"type":"http","schedule":"* * * * *","timezone":"UTC","queue":"default"}', NULL, 1000000, 1000000),
  (x'05000000000000000000000000000000', 0, 'elsewhere', 'once', 1, 'active', '{"type":"http","schedule":" 2026-03-01T09:00:00Z","timezone":"UTC","queue":"default"}', NULL, 1000000, 1000000),
  (x'04000000000000000000000000000000', 0, 'elsewhere', NULL, 1, 'active', 'not JSON', NULL, 1000000, 1000000);
INSERT INTO revisions (job_id, revision, shard, spec, payload, replaced_at) VALUES
  (x'01000000000000000000000000000000', 1, 0, '{"type":"http","schedule":"0 * * * *","timezone":"UTC","queue":"default"}', '{"url":"http://earlier"}', 2000000);
INSERT INTO plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version)
  SELECT id, shard, 1, CASE WHEN state = 'active' AND name IS NOT 'once' THEN 4102444800000000 END, NULL, NULL, 0, 'v' FROM jobs;
INSERT INTO runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms,
  attempt, failures, lost, worker, token, started_at, deadline_at) VALUES
  (x'0a000000000000000000000000000000', 0, 'default', x'01000000000000000000000000000000', 1, 'scheduled', 'default/http', 'ready', 3000000, 3000000, 3000000, 3000000,
   zeroblob(16), 1, 1000, 0, 0, 0, NULL, NULL, NULL, NULL),
  (x'0b000000000000000000000000000000', 0, 'default', x'01000000000000000000000000000000', 2, 'manual', 'bulk/http', 'running', 3000000, 3000000, 3000000, 3000000,
   zeroblob(16), 1, 1000, 1, 0, 0, zeroblob(16), zeroblob(16), 3000000, 3000000);
INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, attempt, settled_at,
  http_status, error, output, skipped_count) VALUES
  (x'0c000000000000000000000000000000', 0, 'default', x'01000000000000000000000000000000', 1, 'scheduled', 'succeeded', '', 1000000, 1000000, 1000000,
   zeroblob(16), 1, 1, 1000000, 200, '', 'fine', 0);
INSERT INTO dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms,
  attempt, failures, lost, died_at, fingerprint) VALUES
  (x'0d000000000000000000000000000000', 0, 'default', x'01000000000000000000000000000000', 1, 'scheduled', 'default/http', 'out_of_retries', 2000000, 2000000, 2000000,
   zeroblob(16), 1, 1000, 1, 1, 0, 2000000, 'f');`

// openedOld opens a database that the first migration alone has made.
func openedOld(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	script, err := migrations.ReadFile("migrations/0001_path_of_a_run.sql")
	if err != nil {
		t.Fatal(err)
	}
	file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(dir, databaseFile)}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, part := range []string{string(script), oldRows} {
		if _, err := db.Exec(part); err != nil {
			t.Fatal(err)
		}
	}
	s := openDir(t, dir)
	t.Cleanup(func() { closed(t, s) })
	return s
}

func TestOldJobsAreFoundByWhatTheyAlwaysHad(t *testing.T) {
	s := openedOld(t)
	for _, tt := range []struct {
		name   string
		filter belfry.JobFilter
		want   []byte // first bytes of ids
	}{
		{"all", belfry.JobFilter{}, []byte{2, 1}},
		{"of a queue", belfry.JobFilter{Queue: "bulk"}, []byte{1}},
		{"of another queue", belfry.JobFilter{Queue: "default"}, []byte{2}},
		{"of a type", belfry.JobFilter{Type: "http"}, []byte{2, 1}},
		{"of no handler", belfry.JobFilter{Handler: "http"}, nil},
		{"paused", belfry.JobFilter{Status: belfry.StatusPaused}, []byte{2}},
		{"queued", belfry.JobFilter{Status: belfry.StatusQueued}, []byte{1}}, // what ran was released
		{"by name", belfry.JobFilter{Search: "REP"}, []byte{1}},
		{"by tag", belfry.JobFilter{Tags: []string{"a"}}, nil},
	} {
		list, err := s.ListJobs(ctx, belfry.DefaultNamespace, tt.filter, store.Page{Limit: 10})
		var got []byte
		for _, job := range list.Jobs {
			got = append(got, job.ID[0])
			if len(job.Tags) != 0 {
				t.Errorf("an old job has the tags %q", job.Tags)
			}
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v (%v), wants %v", tt.name, got, err, tt.want)
		}
	}
	id, err := s.JobIDByName(ctx, belfry.DefaultNamespace, "report")
	if err != nil || id[0] != 1 {
		t.Errorf("the name leads to %s (%v)", id, err)
	}
	revisions, err := s.Revisions(ctx, belfry.DefaultNamespace, id, 0, 10)
	if err != nil || len(revisions) != 1 || revisions[0].Spec.Schedule != "0 * * * *" || string(revisions[0].Payload) != `{"url":"http://earlier"}` {
		t.Errorf("the revisions are %+v (%v)", revisions, err)
	}
}

func TestOldRunsGoOnAfterAMigration(t *testing.T) {
	s := openedOld(t)
	list, err := s.ListRuns(ctx, belfry.DefaultNamespace, belfry.RunFilter{}, store.Page{Limit: 10})
	if err != nil || len(list.Runs) != 4 {
		t.Fatalf("%d runs are listed (%v), wants 4", len(list.Runs), err)
	}
	for _, run := range list.Runs {
		if found, err := s.Run(ctx, run.Namespace, run.ID); err != nil || found.Status != run.Status || found.TemplateKey != "" {
			t.Errorf("the %s run %s is found as %+v (%v)", run.Status, run.ID, found, err)
		}
	}
	worker := register(t, s)
	runs, err := s.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{"default/http", "bulk/http"}, Limit: 10})
	if err != nil || len(runs) != 2 {
		t.Fatalf("%d runs were claimed (%v), wants 2", len(runs), err)
	}
	for _, run := range runs {
		if run.JobName != "report" || run.Spec.Type != "http" || run.Key() == "" {
			t.Errorf("claimed %+v", run)
		}
	}
	finish(t, s, belfry.OutcomeSucceeded, runs...)
	if n := count(t, s, `SELECT count(*) FROM history WHERE key IS NULL AND state = 'succeeded'`); n != 3 {
		t.Errorf("%d runs succeeded, wants 3", n)
	}
	create(t, s, newJob(t, s, time.Now(), "* * * * *"))
}

// TestOldOneOffsAreRetired has a one-off that was over before there was a place for
// such jobs. One whose spec nobody can read stays where it is.
func TestOldOneOffsAreRetired(t *testing.T) {
	s := openedOld(t)
	if n, _, err := s.Archive(ctx, allShards(s), belfry.ID{}, 10); n != 1 || err != nil {
		t.Errorf("%d jobs were retired (%v), wants 1", n, err)
	}
	id, err := s.JobIDByName(ctx, "elsewhere", "once")
	if err != nil {
		t.Fatal(err)
	}
	if job, err := s.Job(ctx, "elsewhere", id); err != nil || job.State != belfry.JobEnded || job.Status != belfry.StatusCancelled {
		t.Errorf("the job is %+v (%v), wants one that has ended without a run", job, err)
	}
	if n := count(t, s, `SELECT count(*) FROM jobs`); n != 4 {
		t.Errorf("%d jobs are left, wants 4", n)
	}
}

// TestOldDeadLettersCanBeRedriven brings back a dead letter that knows nothing of
// priorities and retention.
func TestOldDeadLettersCanBeRedriven(t *testing.T) {
	s := openedOld(t)
	letters, err := s.ListDeadLetters(ctx, belfry.DefaultNamespace, belfry.DeadFilter{}, store.Page{Limit: 10})
	if err != nil || len(letters) != 1 || letters[0].JobName != "report" || letters[0].Fingerprint != "f" {
		t.Fatalf("the dead letters are %+v (%v)", letters, err)
	}
	letter, err := s.DeadLetter(ctx, belfry.DefaultNamespace, letters[0].ID)
	if err != nil || letter.Spec.Schedule != "0 * * * *" || string(letter.Payload) != `{"url":"http://earlier"}` {
		t.Errorf("the dead letter has the spec and payload of another revision: %+v (%v)", letter, err)
	}
	if n, err := s.Redrive(ctx, belfry.DefaultNamespace, []store.Redrive{{Run: letter.ID}}); n != 1 || err != nil {
		t.Fatalf("%d were redriven (%v)", n, err)
	}
	if run, err := s.Run(ctx, belfry.DefaultNamespace, letter.ID); err != nil || run.Status != belfry.RunWaiting || run.Attempt != 1 {
		t.Errorf("the run is %s after %d attempts (%v), wants it to wait for the two that are alive", run.Status, run.Attempt, err)
	}
}
