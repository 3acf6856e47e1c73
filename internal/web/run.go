package web

import (
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
)

type runPage struct {
	Run     belfry.Run
	Job     belfry.Job
	Dead    *belfry.DeadLetter
	Facts   []fact
	Log     belfry.RunLog
	Retries []time.Time
	Live    bool
	Lag     string
	Took    string
}

func (s *server) run(r *request) error {
	id, err := belfry.ParseID(r.PathValue("run"))
	if err != nil {
		return belfry.Errorf(belfry.NotFound, "there is no run %.40q; runs are named by their ids", r.PathValue("run"))
	}
	run, err := s.Control.Run(r.ctx, r.namespace, id)
	if err != nil {
		return err
	}
	p := runPage{Run: run, Live: run.Status.Live(), Took: took(run.StartedAt, run.FinishedAt)}
	if p.Job, err = s.Control.JobHistory(r.ctx, r.namespace, run.JobID.String()); err != nil && belfry.CodeOf(err) != belfry.NotFound {
		return err
	}
	if run.Status != belfry.RunSkipped {
		if p.Log, err = s.Control.RunLog(r.ctx, r.namespace, id, belfry.LogQuery{}); err != nil && belfry.CodeOf(err) != belfry.NotFound {
			return err
		}
	}
	if run.Status == belfry.RunDead {
		letter, err := s.Control.DeadLetter(r.ctx, r.namespace, id)
		if err != nil && belfry.CodeOf(err) != belfry.NotFound {
			return err
		}
		p.Dead = &letter
	}
	if run.StartedAt != nil && run.Attempt == 1 {
		p.Lag = durationText(max(run.StartedAt.Sub(run.ReadyAt), time.Millisecond))
	}
	p.Retries = retrySchedule(run, p.Job)
	p.Facts = facts(run, p.Job.Timezone, "kind", "scheduled_at", "ready_at", "fired_at", "started_at", "finished_at", "attempt", "http_status", "revision", "worker_id",
		"idempotency_key", "trace_id", "run_id", "cancel_requested_at", "skipped_to", "skipped_count")
	return r.show("run.html", "runs", "Run of "+jobTitle(run.JobName, run.JobID), p)
}

// retrySchedule is when the next attempts of a run are, should each fail at once.
func retrySchedule(run belfry.Run, job belfry.Job) (list []time.Time) {
	if run.Status != belfry.RunRetry {
		return nil
	}
	policy, failures := job.Spec.Retry(), 0
	for _, a := range run.Attempts {
		if a.Outcome == belfry.OutcomeFailed || a.Outcome == belfry.OutcomeTimedOut {
			failures++
		}
	}
	for at := run.ReadyAt; failures <= policy.Max && len(list) < 5; failures++ {
		list = append(list, at)
		at = at.Add(policy.Delay(run.ID, failures+1))
	}
	return list
}

func (s *server) runs(r *request) error {
	var filter belfry.RunFilter
	l, page := newListing[belfry.Run](r, &filter, "status", "job")
	if l.Error == "" {
		runs, next, err := s.Control.ListRuns(r.ctx, r.namespace, filter, page)
		if belfry.CodeOf(err) == belfry.NotFound {
			l.Error = publicText(err)
		} else if err != nil {
			return err
		}
		l.Items, l.Next = runs, position(next)
	}
	return r.show("runs.html", "runs", "Runs", l)
}

func (s *server) actOnRun(r *request) error {
	id, err := belfry.ParseID(r.PathValue("run"))
	if err != nil {
		return belfry.Errorf(belfry.NotFound, "there is no run %.40q", r.PathValue("run"))
	}
	action, here := r.PathValue("action"), "/runs/"+id.String()
	switch action {
	case "cancel":
		_, err = s.Control.CancelRun(r.ctx, r.namespace, id)
	case "redrive":
		again := belfry.Redrive{RunID: id}
		again.AsFired = r.PostFormValue("as_fired") != ""
		if text := strings.TrimSpace(r.PostFormValue("payload")); text != "" && r.PostFormValue("edited") != "" {
			again.Payload = jsonOrText(text)
		}
		_, err = s.Control.Redrive(r.ctx, r.namespace, again)
	case "discard":
		if !r.confirmed() {
			return r.confirm("dead", confirmation{Title: "Discard this dead letter?", Text: "It moves to the history and can no longer be redriven.", Button: "Discard", Danger: true, Back: here})
		}
		_, err = s.Control.Discard(r.ctx, r.namespace, belfry.Discard{RunID: id})
	default:
		err = belfry.Errorf(belfry.NotFound, "there is no action %.40q", action)
	}
	if err != nil {
		return err
	}
	return r.redirect(here, action)
}

type deadPage struct {
	listing[belfry.DeadLetter]
	Groups []belfry.DeadGroup
	Chosen string // fingerprint
}

var deadFilterNames = []string{"job", "error", "reason", "fingerprint"}

func (s *server) dead(r *request) error {
	var filter belfry.DeadFilter
	l, page := newListing[belfry.DeadLetter](r, &filter, deadFilterNames...)
	l.Filter = slices.DeleteFunc(l.Filter, func(f *formField) bool { return f.Name == "fingerprint" })
	p := deadPage{listing: l, Chosen: filter.Fingerprint}
	if p.Error == "" {
		without := filter
		without.Fingerprint = ""
		var next store.Position
		groups, err := s.Control.GroupDeadLetters(r.ctx, r.namespace, without, 50)
		if err == nil {
			p.Groups = groups
			p.Items, next, err = s.Control.ListDeadLetters(r.ctx, r.namespace, filter, page)
		}
		if belfry.CodeOf(err) == belfry.NotFound {
			p.Error = publicText(err)
		} else if err != nil {
			return err
		}
		p.Next = position(next)
	}
	return r.show("dead.html", "dead", "Dead letters", p)
}

// actOnDead redrives or discards all dead letters that match a filter, after a count.
func (s *server) actOnDead(r *request) error {
	var filter belfry.DeadFilter
	values := map[string][]string{}
	for _, name := range deadFilterNames {
		if v := r.PostFormValue(name); v != "" {
			values[name] = []string{v}
		}
	}
	if fields := schema.DecodeQuery(values, &filter); len(fields) > 0 {
		return &belfry.Error{Code: belfry.Invalid, Message: "the filter is not valid", Fields: fields}
	}
	all, dry := len(values) == 0, !r.confirmed()
	var result belfry.DeadResult
	var err error
	verb, text := "Redrive", "They run again, with all their retries, as their jobs are now."
	switch r.PathValue("action") {
	case "redrive":
		result, err = s.Control.Redrive(r.ctx, r.namespace, belfry.Redrive{Filter: filter, All: all, DryRun: dry})
	case "discard":
		verb, text = "Discard", "They move to the history and can no longer be redriven."
		result, err = s.Control.Discard(r.ctx, r.namespace, belfry.Discard{Filter: filter, All: all, DryRun: dry})
	default:
		err = belfry.Errorf(belfry.NotFound, "there is no action %.40q", r.PathValue("action"))
	}
	switch {
	case err != nil:
		return err
	case !dry:
		return r.redirect("/dead", r.PathValue("action"), "n", result.Done)
	}
	count := number(result.Matched) + " dead letters"
	if result.Matched == 1 {
		count = "1 dead letter"
	}
	return r.confirm("dead", confirmation{Title: verb + " " + count + "?", Text: text, Button: verb + " " + count, Danger: verb == "Discard", Back: r.link("/dead")})
}
