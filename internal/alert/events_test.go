package alert

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/store"
)

// events are the kinds and messages of all events, the oldest first.
func (w *world) events() (all []string) {
	w.T.Helper()
	events, err := w.Store.EventsAfter(w.T.Context(), belfry.ID{}, 1000)
	w.OK(err)
	for _, e := range events {
		all = append(all, string(e.Kind)+": "+e.Message)
	}
	return all
}

// wantEvents compares the events, in any order: those of one round have none.
func (w *world) wantEvents(doing string, want ...string) {
	w.T.Helper()
	got := w.events()
	for _, e := range want {
		if n := strings.Count(strings.Join(got, "\n")+"\n", e+"\n"); n != 1 {
			w.T.Errorf("%s: there are %d events %q among\n\t%s", doing, n, e, strings.Join(got, "\n\t"))
		}
	}
	if len(got) != len(want) {
		w.T.Errorf("%s: there are %d events, want %d:\n\t%s", doing, len(got), len(want), strings.Join(got, "\n\t"))
	}
}

func TestEventsOfAJob(t *testing.T) {
	controltest.Run(t, "events", func(s *controltest.Scenario) {
		w := newWorld(s, on(belfry.AlertDead))
		job := s.Create("* * * * *", noRetries)
		s.Edit(job, func(m *belfry.Manifest) { m.Name = "report" })
		s.SleepUntil("09:01")
		s.Fire()
		run := s.Claim(1)[0]
		s.Finish(run, belfry.OutcomeFailed, boom)
		w.rounds(30 * time.Second)
		died := []string{"job_failing: report fails: boom", "run_dead: a run of report died: boom", "alert_opened: alert for ops: a run of report died: boom"}
		w.wantEvents("it died", died...)
		line := fmt.Sprintf(`msg="a run died" event=run_dead namespace=default job=report job_id=%s run_id=%s trace_id=%s attempt=1 reason=out_of_retries runs=1 error=boom`, job.ID, run.ID, belfry.RunTraceID(run.ID))
		if got := w.log.String(); strings.Count(got, line) != 1 || strings.Count(got, "msg=") != 3 {
			s.T.Errorf("the log is\n%s\nwant\n%s", got, line)
		}

		// Another node that takes over looks at the same again, and says nothing twice.
		w.restart()
		w.alerts.since = time.Time{}
		time.Sleep(leaseTime)
		w.rounds(20 * time.Second)
		w.wantEvents("another node took over", died...)

		s.SleepUntil("09:03")
		s.Fire()
		s.Finish(s.Claim(1)[0], belfry.OutcomeSucceeded)
		w.rounds(10 * time.Second)
		w.wantEvents("it succeeded", append(died, "job_recovered: report has recovered")...)
		s.Discard(run.ID)
		w.rounds(20 * time.Second)
		w.wantEvents("it was discarded", append(died, "job_recovered: report has recovered", "alert_resolved: alert for ops is resolved: a run of report died: boom")...)

		ofJob, err := s.Store.ListEvents(s.T.Context(), belfry.DefaultNamespace, belfry.EventFilter{JobID: job.ID, Kind: belfry.EventRunDead}, store.Page{Limit: 10})
		s.OK(err)
		if len(ofJob) != 1 || ofJob[0].RunID != run.ID || ofJob[0].Count != 1 {
			s.T.Errorf("the deaths of the job are %+v", ofJob)
		}
	})
}

func TestEventsOfNodes(t *testing.T) {
	controltest.Run(t, "nodes", func(s *controltest.Scenario) {
		w := newWorld(s)
		keep := func(node store.Node) { s.OK(s.Store.KeepNode(s.T.Context(), node)) }
		old := store.Node{ID: belfry.NewID(time.Now()), Name: "old", Version: "1", Roles: []string{"api"}}
		keep(old)
		time.Sleep(time.Hour)
		stable := store.Node{ID: belfry.NewID(time.Now()), Name: "stable", Version: "1", Roles: []string{"api"}}
		weak := store.Node{ID: belfry.NewID(time.Now()), Name: "weak", Version: "2", Roles: []string{"worker"}}
		keep(stable)
		keep(weak)
		alive := func(d time.Duration, nodes ...store.Node) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				for _, n := range nodes {
					keep(n)
				}
				w.rounds(interval)
			}
		}
		kinds := regexp.MustCompile(` \([0-9a-f-]{36}\)|: it was last seen at \d\d:\d\d:\d\dZ`)
		want := func(doing string, want ...string) {
			s.T.Helper()
			if got := kinds.ReplaceAllString(strings.Join(w.events(), "\n"), ""); got != strings.Join(want, "\n") {
				s.T.Errorf("%s:\n%s", doing, got)
			}
		}
		alive(time.Minute, stable, weak)
		joined := w.events()
		if len(joined) != 2 {
			s.T.Fatalf("they joined: %q", joined)
		}
		both := strings.Split(kinds.ReplaceAllString(strings.Join(joined, "\n"), ""), "\n")
		alive(store.NodeTimeout-interval, stable)
		want("it is silent for a moment", both...)
		alive(time.Minute, stable)
		lost := append(both, "node_lost: node weak was lost")
		want("it is silent", lost...)
		alive(time.Minute, stable, weak)
		back := append(lost, "node_joined: node weak joined")
		want("it is back", back...)
		s.OK(s.Store.EndNode(s.T.Context(), weak.ID))
		alive(time.Minute, stable)
		want("it left", append(back, "node_left: node weak left")...)
		if got := w.log.String(); strings.Count(got, `msg="a node was lost" event=node_lost namespace=default node=weak node_id=`+weak.ID.String()+` version=2 roles=[worker]`) != 1 {
			s.T.Errorf("the log is\n%s", got)
		}
	})
}
