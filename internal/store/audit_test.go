package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// newEntry is an entry of a namespace.
func newEntry(namespace string, change func(*belfry.AuditEntry)) belfry.AuditEntry {
	id := newID()
	e := belfry.AuditEntry{
		ID: id, At: id.Time(), Actor: belfry.Actor{Kind: belfry.ActorKey, ID: "k1", Name: "deploy"}, Address: "192.0.2.7", RequestID: "r1",
		Namespace: namespace, Action: belfry.AuditEdit, Object: belfry.AuditObject{Kind: belfry.AuditJob, ID: id.String(), Name: "report"},
	}
	if change != nil {
		change(&e)
	}
	return e
}

// recording is a context whose write records an entry: always, or when the store says so.
func recording(whenDone bool) (context.Context, belfry.AuditEntry) {
	e, a := newEntry(namespace, nil), &store.Audit{}
	if a.Set(e); whenDone {
		a.SetWhenDone(func([]belfry.ID) []belfry.AuditEntry { return []belfry.AuditEntry{e} })
	}
	return store.WithAudit(ctx, a), e
}

// auditedWrite is a write that requests make.
type auditedWrite struct {
	name     string
	whenDone bool // the store says whether there was anything to do
	prepare  func(t *testing.T, f *fixture) func(ctx context.Context) error
}

var auditedWrites = []auditedWrite{
	{"create a job", false, func(t *testing.T, f *fixture) func(context.Context) error {
		job := f.job(f.minutesAgo(-5))
		return func(ctx context.Context) error { return f.CreateJobs(ctx, jobSeq(job), nil) }
	}},
	{"create a one-off", false, func(t *testing.T, f *fixture) func(context.Context) error {
		job := f.job(f.minutesAgo(-5), withSchedule(f.minutesAgo(-5).Format(time.RFC3339)))
		return func(ctx context.Context) error { return f.CreateJobs(ctx, jobSeq(job), nil) }
	}},
	{"create many jobs", false, func(t *testing.T, f *fixture) func(context.Context) error {
		var jobs []store.NewJob
		for range 60 {
			jobs = append(jobs, f.job(f.minutesAgo(-5)))
		}
		return func(ctx context.Context) error { return f.CreateJobs(ctx, jobSeq(jobs...), nil) }
	}},
	{"edit a job", false, func(t *testing.T, f *fixture) func(context.Context) error {
		job := f.createJob(t, -5)
		return func(ctx context.Context) error {
			_, err := f.EditJob(ctx, job.Namespace, job.ID, revise(t, func(j *belfry.Job) { j.Description = "another" }))
			return err
		}
	}},
	{"cancel a job", false, func(t *testing.T, f *fixture) func(context.Context) error {
		run := f.startRun(t)
		return func(ctx context.Context) error {
			_, err := f.EditJob(ctx, run.Namespace, run.JobID, cancelJob(t))
			return err
		}
	}},
	{"delete an ended job", false, func(t *testing.T, f *fixture) func(context.Context) error {
		job := f.createOneOff(t, 5)
		f.fireDue(t)
		f.finishAs(t, f.claimOne(t, f.registerWorker(t)), belfry.OutcomeSucceeded)
		f.archiveSoon(t, job)
		return func(ctx context.Context) error { return f.DeleteEnded(ctx, job.Namespace, job.ID, false) }
	}},
	{"trigger", false, func(t *testing.T, f *fixture) func(context.Context) error {
		triggers := f.oneTrigger(f.createJob(t, -5))
		return func(ctx context.Context) error { return f.Trigger(ctx, triggers, nil) }
	}},
	{"cancel a ready run", true, func(t *testing.T, f *fixture) func(context.Context) error {
		run := f.fireNext(t, f.createJob(t, 5))
		return func(ctx context.Context) error { return f.Cancel(ctx, run.Namespace, run.ID) }
	}},
	{"cancel a running run", true, func(t *testing.T, f *fixture) func(context.Context) error {
		run := f.startRun(t)
		return func(ctx context.Context) error { return f.Cancel(ctx, run.Namespace, run.ID) }
	}},
	{"cancel a trigger", true, func(t *testing.T, f *fixture) func(context.Context) error {
		job := f.createJob(t, -5)
		run := f.trigger(t, job, "").RunID()
		return func(ctx context.Context) error { return f.Cancel(ctx, job.Namespace, run) }
	}},
	{"redrive", true, func(t *testing.T, f *fixture) func(context.Context) error {
		run := f.deadRun(t)
		return func(ctx context.Context) error {
			_, err := f.Redrive(ctx, run.Namespace, []store.Redrive{{Run: run.ID}})
			return err
		}
	}},
	{"discard", true, func(t *testing.T, f *fixture) func(context.Context) error {
		run := f.deadRun(t)
		return func(ctx context.Context) error {
			_, err := f.Discard(ctx, run.Namespace, []belfry.ID{run.ID})
			return err
		}
	}},
	{"create a monitor", false, func(t *testing.T, f *fixture) func(context.Context) error {
		m := f.monitor(namespace, "backup")
		return func(ctx context.Context) error { return f.CreateMonitor(ctx, m) }
	}},
	{"edit a monitor", false, func(t *testing.T, f *fixture) func(context.Context) error {
		m := f.createMonitor(t, f.monitor(namespace, "edited"))
		return func(ctx context.Context) error {
			_, err := f.EditMonitor(ctx, store.MonitorKey{Namespace: namespace, ID: m.ID}, func(m belfry.Monitor, _ time.Time) (*belfry.Monitor, error) {
				m.Description = "another"
				return &m, nil
			})
			return err
		}
	}},
	{"delete a monitor", false, func(t *testing.T, f *fixture) func(context.Context) error {
		m := f.createMonitor(t, f.monitor(namespace, "deleted"))
		return func(ctx context.Context) error { return f.DeleteMonitor(ctx, namespace, m.ID) }
	}},
	{"put a channel", false, func(t *testing.T, f *fixture) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := f.PutChannel(ctx, belfry.Channel{Namespace: namespace, Name: "oncall", Type: belfry.ChannelSlack})
			return err
		}
	}},
	{"delete a channel", false, func(t *testing.T, f *fixture) func(context.Context) error {
		_, err := f.PutChannel(ctx, belfry.Channel{Namespace: namespace, Name: "gone", Type: belfry.ChannelSlack})
		wantNoError(t, err)
		return func(ctx context.Context) error { return f.DeleteChannel(ctx, namespace, "gone") }
	}},
	{"save an alert", true, func(t *testing.T, f *fixture) func(context.Context) error {
		a := f.newAlert("k", time.Time{})
		f.saveAlerts(t, 1, a)
		a = f.alert(t, a.ID)
		a.Status = belfry.AlertAcknowledged
		return func(ctx context.Context) error {
			_, err := f.SaveAlerts(ctx, []store.AlertRecord{a})
			return err
		}
	}},
	{"log in", false, func(t *testing.T, f *fixture) func(context.Context) error {
		return func(ctx context.Context) error {
			return f.AddSession(ctx, store.Session{ID: store.Hash{1}, Key: store.Hash{2}})
		}
	}},
	{"log out", true, func(t *testing.T, f *fixture) func(context.Context) error {
		wantNoError(t, f.AddSession(ctx, store.Session{ID: store.Hash{3}, Key: store.Hash{2}}))
		return func(ctx context.Context) error { return f.EndSession(ctx, store.Hash{3}) }
	}},
}

func wantNoError(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// dump is all rows of the tables that requests change, without the audit.
func (f *fixture) dump(t tb) (rows []string) {
	for _, table := range []string{"jobs", "plans", "triggers", "runs", "history", "attempts", "dead", "ended", "revisions", "keys", "requests", "monitors", "channels", "alerts", "sessions", "events"} {
		rows = append(rows, read(t, f, func(r *sql.Rows) (string, error) {
			columns, err := r.Columns()
			if err != nil {
				return "", err
			}
			values, to := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				to[i] = &values[i]
			}
			err = r.Scan(to...)
			return fmt.Sprint(table, values), err
		}, `SELECT * FROM `+table)...)
	}
	slices.Sort(rows)
	return rows
}

func (f *fixture) countAudit(t tb) int64 { return f.count(t, `SELECT count(*) FROM audit`) }

// breakAudit makes every insert of an audit entry fail, or lets it succeed again.
func (f *fixture) breakAudit(t tb, broken bool) {
	t.Helper()
	switch {
	case !broken && f.server:
		f.exec(t, `DROP TRIGGER broken ON audit`)
	case !broken:
		f.exec(t, `DROP TRIGGER broken`)
	case f.server:
		f.exec(t, `CREATE OR REPLACE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''the audit is broken''; END'`)
		f.exec(t, `CREATE TRIGGER broken BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION broken()`)
	default:
		f.exec(t, `CREATE TRIGGER broken BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the audit is broken'); END`)
	}
}

// A change whose entry cannot be written is not made. Repeating it adds one entry, however often
// its outcome is unknown.
func TestAChangeAndItsAuditEntryAreOneTransaction(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, w := range auditedWrites {
			call := w.prepare(t, f)
			before, entries := f.dump(t), f.countAudit(t)
			audited, e := recording(w.whenDone)
			f.breakAudit(t, true)
			if err := call(audited); err == nil || !strings.Contains(err.Error(), "the audit is broken") {
				t.Errorf("%s: the error is %v", w.name, err)
			}
			f.breakAudit(t, false)
			if diff := cmp.Diff(before, f.dump(t)); diff != "" {
				t.Errorf("%s: without its entry it changed (-before +after):\n%s", w.name, diff)
			}
			if err := call(audited); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
			if cmp.Equal(before, f.dump(t)) {
				t.Errorf("%s changes nothing", w.name)
			}
			_ = call(audited) // An error says that it is done.
			if n := f.countAudit(t); n != entries+1 || f.count(t, `SELECT count(*) FROM audit WHERE id = ?`, e.ID) != 1 {
				t.Errorf("%s: there are %d entries more, wants one", w.name, n-entries)
			}
			checkInvariants(t, f)
			f.deleteAll(t)
			if t.Failed() {
				t.Fatalf("%s", w.name)
			}
		}
	})
}

// A change that is refused, or that finds nothing to do, leaves no entry.
func TestARefusedChangeLeavesNoAuditEntry(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.createJob(t, -5, withName("taken"))
		other := f.createJob(t, -5, withName("other"))
		f.createMonitor(t, f.monitor(namespace, "taken"))
		always, _ := recording(false)
		done, _ := recording(true)
		gone := newID()
		for name, call := range map[string]func() error{
			"create": func() error { return f.CreateJobs(always, jobSeq(f.job(f.origin, withName("taken"))), nil) },
			"rename": func() error {
				_, err := f.EditJob(always, namespace, other.ID, revise(t, func(j *belfry.Job) { j.Name = "taken" }))
				return err
			},
			"trigger":        func() error { return f.Trigger(always, f.oneTrigger(f.job(f.origin).Job), nil) },
			"monitor":        func() error { return f.CreateMonitor(always, f.monitor(namespace, "taken")) },
			"delete monitor": func() error { return f.DeleteMonitor(always, namespace, gone) },
			"delete channel": func() error { return f.DeleteChannel(always, namespace, "none") },
			"delete ended":   func() error { return f.DeleteEnded(always, namespace, gone, false) },
			"cancel":         func() error { return f.Cancel(done, namespace, gone) },
		} {
			if err := call(); belfry.CodeOf(err) != belfry.Conflict && belfry.CodeOf(err) != belfry.NotFound {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, call := range map[string]func() error{
			"discard": func() error { _, err := f.Discard(done, namespace, []belfry.ID{gone}); return err },
			"redrive": func() error { _, err := f.Redrive(done, namespace, []store.Redrive{{Run: gone}}); return err },
			"alert": func() error {
				a := f.newAlert("k", time.Time{})
				a.Version = 7
				_, err := f.SaveAlerts(done, []store.AlertRecord{a})
				return err
			},
			"log out": func() error { return f.EndSession(done, store.Hash{9}) },
			"links":   func() error { return f.AddTraceLinks(always, []belfry.ID{gone}, "00-1-2-01") },
			"repeated request": func() error {
				r := &store.Request{Namespace: namespace, Key: "key", Response: func() ([]byte, error) { return []byte("{}"), nil }}
				wantNoError(t, f.Trigger(ctx, f.oneTrigger(other), r))
				if err := f.Trigger(always, f.oneTrigger(other), r); err == nil {
					t.Error("a key was used twice")
				}
				return nil
			},
		} {
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := f.countAudit(t); n != 0 {
			t.Errorf("there are %d entries", n)
		}
	})
}

func (f *fixture) listAudit(t tb, namespace string, filter belfry.AuditFilter, limit int) (all []belfry.AuditEntry) {
	t.Helper()
	f.pages(t, limit, func(p store.Page) (int, belfry.ID, error) {
		list, err := f.ListAudit(ctx, namespace, filter, p)
		all = append(all, list.Entries...)
		return len(list.Entries), list.Next, err
	})
	return all
}

func TestAuditEntriesAreListedByFilterAndPruned(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := newID()
		var all []belfry.AuditEntry
		add := func(namespace string, change func(*belfry.AuditEntry)) belfry.AuditEntry {
			e := newEntry(namespace, change)
			wantNoError(t, f.AddAudit(ctx, e))
			wantNoError(t, f.AddAudit(ctx, e))
			all = append([]belfry.AuditEntry{e}, all...)
			return e
		}
		first, last := newID(), newID()
		imported := add("ours", func(e *belfry.AuditEntry) {
			e.Action, e.Count, e.Object.ID, e.Object.LastID = belfry.AuditImport, 3, first.String(), last
			copy(e.ID[:6], first[:6]) // as control does
			e.At = e.ID.Time()
		})
		for i := range 7 {
			add("ours", func(e *belfry.AuditEntry) {
				e.JobID, e.Before, e.After = job, []byte(`{"a":1}`), []byte(fmt.Sprintf(`{"a":%d}`, i))
				if i%2 == 0 {
					e.Actor, e.Action = belfry.Actor{Kind: belfry.ActorUser, Name: "ann"}, belfry.AuditPause
				}
			})
		}
		add("theirs", func(e *belfry.AuditEntry) { e.JobID = job })
		add("", func(e *belfry.AuditEntry) { e.Action = belfry.AuditLogin })
		of := func(keep func(belfry.AuditEntry) bool) (kept []belfry.AuditEntry) {
			for _, e := range all {
				if keep(e) {
					kept = append(kept, e)
				}
			}
			return kept
		}
		ours := func(e belfry.AuditEntry) bool { return e.Namespace == "ours" }
		middle := all[4].At
		for _, tt := range []struct {
			name   string
			filter belfry.AuditFilter
			keep   func(belfry.AuditEntry) bool
		}{
			{"namespace", belfry.AuditFilter{}, ours},
			{"global", belfry.AuditFilter{Scope: belfry.AuditGlobal}, func(e belfry.AuditEntry) bool { return e.Namespace == "" }},
			{"all", belfry.AuditFilter{Scope: belfry.AuditAll}, func(belfry.AuditEntry) bool { return true }},
			{"job", belfry.AuditFilter{JobID: job}, func(e belfry.AuditEntry) bool { return ours(e) && e.JobID == job }},
			{"actor id", belfry.AuditFilter{Actor: "k1"}, func(e belfry.AuditEntry) bool { return ours(e) && e.Actor.ID == "k1" }},
			{"actor name", belfry.AuditFilter{Actor: "ann"}, func(e belfry.AuditEntry) bool { return ours(e) && e.Actor.Name == "ann" }},
			{"action", belfry.AuditFilter{Action: belfry.AuditPause}, func(e belfry.AuditEntry) bool { return ours(e) && e.Action == belfry.AuditPause }},
			{"since", belfry.AuditFilter{Since: middle}, func(e belfry.AuditEntry) bool { return ours(e) && !e.At.Before(middle) }},
			{"until", belfry.AuditFilter{Until: middle}, func(e belfry.AuditEntry) bool { return ours(e) && e.At.Before(middle) }},
			{"first of an import", belfry.AuditFilter{JobID: first}, func(e belfry.AuditEntry) bool { return e.ID == imported.ID }},
			{"last of an import", belfry.AuditFilter{JobID: last}, func(e belfry.AuditEntry) bool { return e.ID == imported.ID }},
			{"import by another", belfry.AuditFilter{JobID: last, Actor: "ann"}, func(belfry.AuditEntry) bool { return false }},
			{"later job", belfry.AuditFilter{JobID: newID()}, func(belfry.AuditEntry) bool { return false }},
		} {
			for _, limit := range []int{1, 3, 100} {
				if diff := cmp.Diff(of(tt.keep), f.listAudit(t, "ours", tt.filter, limit), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s, pages of %d (-want +got):\n%s", tt.name, limit, diff)
				}
			}
		}
		if n, err := f.PruneAudit(ctx, time.Hour); n != 0 || err != nil {
			t.Errorf("%d entries were pruned too early (%v)", n, err)
		}
		if n, err := f.PruneAudit(ctx, -time.Hour); n != len(all) || err != nil || f.countAudit(t) != 0 {
			t.Errorf("%d entries of %d were pruned (%v)", n, len(all), err)
		}
	})
}

// A reply that is lost leaves one entry, whether or not the change was committed.
func TestALostReplyLeavesOneAuditEntry(t *testing.T) {
	f, proxy := openLossy(t)
	job := f.createJob(t, -5)
	edited, _ := recording(false)
	proxy.EatReplies("/* record audit */", 1)
	retryUnknown(t, proxy, func() error {
		_, err := f.EditJob(edited, namespace, job.ID, pause(t))
		return err
	})
	triggers := f.oneTrigger(job)
	triggered, _ := recording(false)
	proxy.EatReplies("commit", 1)
	retryUnknown(t, proxy, func() error { return f.Trigger(triggered, triggers, nil) })
	if n := f.countAudit(t); n != 2 {
		t.Errorf("there are %d entries, wants 2", n)
	}
	if got := f.getJob(t, job); got.State != belfry.JobPaused || len(f.pendingTriggers(t)) != 1 {
		t.Errorf("the job is %s, and has %d triggers", got.State, len(f.pendingTriggers(t)))
	}
}
