package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestRunCancel(t *testing.T) {
	p := withServer(t)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--handler", "nobody", "--overlap", "parallel")
	var asked [3]belfry.TriggerResult
	for i := range asked {
		p.json(&asked[i], "job", "trigger", "a")
	}
	first, second, third := asked[0].RunID.String(), asked[1].RunID.String(), asked[2].RunID.String()
	if r := p.ok("run", "cancel", first); r.out != "cancelled  "+first+"\n" {
		t.Errorf("cancel printed %+v", r)
	}
	if r := p.run("run", "cancel", belfry.ID{1}.String(), second, first); r.code != exitNotFound || r.out != "cancelled  "+second+"\ncancelled  "+first+"\n" {
		t.Errorf("cancel ended with %+v", r)
	}
	if r := p.run("run", "watch", first); r.code != exitNoSuccess || !strings.Contains(r.err, "run "+first+" is cancelled") {
		t.Errorf("watch ended with %+v", r)
	}
	if rows := columns(p.ok("run", "list", "--status", "cancelled").out); len(rows) != 3 {
		t.Errorf("the cancelled runs are %q", rows)
	}
	if r := p.ok("job", "cancel", "a"); r.out != "cancelled  a\n" {
		t.Errorf("cancel of a job printed %+v", r)
	}
	var run belfry.Run
	if p.json(&run, "run", "show", third); run.Status != belfry.RunCancelled || p.job("a").NextRunAt != nil || p.job("a").Status != belfry.StatusCancelled {
		t.Errorf("the run is %s, and the job is %+v", run.Status, p.job("a"))
	}
	if r := p.ok("job", "resume", "a"); !strings.HasPrefix(r.out, "resumed    a   next ") || p.job("a").Status != belfry.StatusScheduled {
		t.Errorf("resume of a cancelled job printed %+v", r)
	}
	if r := p.run("run", "cancel", "latest"); r.code != exitUsage || !strings.Contains(r.err, `"latest" is not an id`) {
		t.Errorf("a run by a word: %+v", r)
	}
	if r := p.run("run", "cancel"); r.code != exitUsage {
		t.Errorf("no run: %+v", r)
	}
}

func TestRunCancelWhileRunning(t *testing.T) {
	p := withServer(t)
	called, dropped := make(chan struct{}, 1), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- struct{}{}
		<-r.Context().Done()
		close(dropped)
	}))
	t.Cleanup(target.Close)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--url", target.URL, "--method", "GET")
	var asked belfry.TriggerResult
	p.json(&asked, "job", "trigger", "a")
	<-called
	id := asked.RunID.String()
	if r := p.ok("run", "cancel", id); r.out != "cancelling  "+id+"   its worker will stop it; see: belfry run watch "+id+"\n" {
		t.Errorf("cancel printed %+v", r)
	}
	if r := p.run("run", "watch", id); r.code != exitNoSuccess || !strings.Contains(r.out, "cancelled") {
		t.Errorf("watch ended with %+v", r)
	}
	<-dropped
}

func TestJobDeleteCancelsRuns(t *testing.T) {
	p := withServer(t)
	for _, name := range []string{"a", "b"} {
		p.ok("job", "create", "--name", name, "--schedule", "@yearly", "--handler", "nobody")
	}
	var a, b belfry.TriggerResult
	p.json(&a, "job", "trigger", "a")
	p.json(&b, "job", "trigger", "b")
	for _, id := range []belfry.ID{a.RunID, b.RunID} { // A trigger is a run once it is fired.
		for run := (belfry.Run{}); run.FiredAt.IsZero(); {
			p.json(&run, "run", "show", id.String())
		}
	}
	p.ok("job", "delete", "a", "--yes")
	p.ok("job", "delete", "b", "--runs", "CANCEL", "--yes")
	var run belfry.Run
	if p.json(&run, "run", "show", a.RunID.String()); run.Status != belfry.RunReady {
		t.Errorf("the run of a is %s", run.Status)
	}
	if p.json(&run, "run", "show", b.RunID.String()); run.Status != belfry.RunCancelled {
		t.Errorf("the run of b is %s", run.Status)
	}
}

func TestJobApplyOfAnEndedOneOff(t *testing.T) {
	p, target := withServer(t), newReceiver(t)
	once := func(at time.Time) string {
		return "name: once\nschedule: " + at.UTC().Format(time.RFC3339Nano) + "\npayload: {url: \"" + target.URL + "\"}\n"
	}
	at := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
	file := p.file("once.yaml", once(at))
	p.ok("job", "apply", "-f", file)
	out, _, interrupt := p.start("run", "watch", "--job", "once")
	out.await(t, "succeeded")
	interrupt()
	if job := p.job("once"); job.Status != belfry.StatusCompleted {
		t.Fatalf("the job is %+v", job)
	}
	if r := p.ok("job", "apply", "-f", file); r.out != "unchanged  once   (it has ended)\n" || len(target.got()) != 1 {
		t.Errorf("apply printed %+v, and the target was called %d times", r, len(target.got()))
	}
	if r := p.run("job", "edit", "once", "--set", "queue=q"); r.code != exitRefused || !strings.Contains(r.err, "the job has ended; create it again") {
		t.Errorf("edit ended with %+v", r)
	}
	ended := p.job("once").ID
	writeFile(t, file, once(at.Add(time.Hour)))
	if r := p.ok("job", "apply", "-f", file); r.out != "created    once\n" {
		t.Errorf("apply of another instant printed %+v", r)
	}
	if job := p.job("once"); job.ID == ended || job.Status != belfry.StatusScheduled {
		t.Errorf("the job is %+v", job)
	}
}

func TestTriggerOfAJobThatOverlaps(t *testing.T) {
	p := withServer(t)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--handler", "nobody", "--overlap", "skip")
	p.ok("job", "trigger", "a")
	r := p.run("job", "trigger", "a")
	if r.code != exitNoSuccess || !strings.HasPrefix(r.out, "skipped    a   run ") || !strings.Contains(r.err, "is skipped: overlap") {
		t.Errorf("it ended with %+v", r)
	}
}

func TestTriggerSaysThatNobodyServesTheHandler(t *testing.T) {
	defer func(d time.Duration) { explainAfter = d }(explainAfter)
	explainAfter = 0
	p := withServer(t)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--handler", "nobody")
	_, said, interrupt := p.start("job", "trigger", "a", "--wait")
	said.await(t, "is queued: no worker serves handler nobody in queue default.")
	interrupt()
}
