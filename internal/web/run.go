package web

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
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
	id, err := r.id("run")
	if err != nil {
		return err
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
	if run.StartedAt != nil && run.Status == belfry.RunRunning {
		p.Took = durationText(s.Control.Now().Sub(*run.StartedAt)) + " so far"
	}
	p.Retries = retrySchedule(run, p.Job)
	p.Facts = facts(run, p.Job.Timezone, "job_id", "job_name", "namespace", "status", "error", "output", "reason", "note", "attempts")
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

func (s *server) actOnRun(r *request) error {
	id, err := r.id("run")
	if err != nil {
		return err
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
	}
	return r.finish(err, here, action)
}

type deadPage struct {
	listing[belfry.DeadLetter]
	Groups []belfry.DeadGroup
	Chosen string // fingerprint
}

var deadFilterNames = []string{"job", "error", "reason", "fingerprint"}

func (s *server) dead(r *request) error {
	p, filter := deadPage{}, belfry.DeadFilter{}
	var err error
	p.listing, filter, err = list(r, deadFilterNames, pageSize, func(ctx context.Context, namespace string, f belfry.DeadFilter, page store.Page) ([]belfry.DeadLetter, store.Position, error) {
		all := f
		all.Fingerprint = ""
		if p.Groups, err = s.Control.GroupDeadLetters(ctx, namespace, all, 50); err != nil {
			return nil, store.Position{}, err
		}
		return s.Control.ListDeadLetters(ctx, namespace, f, page)
	})
	p.Chosen = filter.Fingerprint
	p.Filter = slices.DeleteFunc(p.Filter, func(f *formField) bool { return f.Name == "fingerprint" })
	return r.showSection("dead", "Dead letters", p, err)
}

// actOnDead redrives or discards all dead letters that match a filter, after a count.
func (s *server) actOnDead(r *request) error {
	var filter belfry.DeadFilter
	if err := r.postedFilter(&filter, deadFilterNames); err != nil {
		return err
	}
	all, dry := filter == belfry.DeadFilter{}, !r.confirmed()
	var result belfry.DeadResult
	var err error
	verb, text := "Redrive", "They run again, with all their retries, as their jobs are now."
	if r.PathValue("action") == "redrive" {
		result, err = s.Control.Redrive(r.ctx, r.namespace, belfry.Redrive{Filter: filter, All: all, DryRun: dry})
	} else {
		verb, text = "Discard", "They move to the history and can no longer be redriven."
		result, err = s.Control.Discard(r.ctx, r.namespace, belfry.Discard{Filter: filter, All: all, DryRun: dry})
	}
	if err != nil || !dry {
		return r.finish(err, "/dead", r.PathValue("action"), "n", result.Done)
	}
	count := counted(result.Matched, "dead letter")
	return r.confirm("dead", confirmation{Title: verb + " " + count + "?", Text: text, Button: verb + " " + count, Danger: verb == "Discard", Back: r.link("/dead")})
}
