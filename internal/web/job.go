package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
)

var noKey control.Key

type jobPage struct {
	Job       belfry.Job
	Preview   belfry.Preview
	Broken    string // why the schedule cannot be shown
	Heat      template.HTML
	Counted   bool // all days were
	Durations *durations
	Facts     []fact
	Payload   string
	Runs      listing[belfry.Run]
	Revisions []revision
	Changes   []belfry.AuditEntry
	Why       *belfry.Explanation
	WhyError  string
	At        string
}

// Failing reports whether the latest attempts failed.
func (p jobPage) Failing() bool { return isFailing(p.Job) }

// Table is the history.
func (p jobPage) Table() runTable { return runTable{Runs: p.Runs.Items} }

type revision struct {
	belfry.Revision
	Changes []belfry.FieldChange // from the one before
}

const (
	heatDays = 90
	heatRuns = 3000 // that are read at most
)

func (s *server) job(r *request) error {
	job, err := s.Control.JobHistory(r.ctx, r.namespace, r.PathValue("job"))
	if err != nil {
		return err
	}
	p, now := jobPage{Job: job, At: strings.TrimSpace(r.URL.Query().Get("at"))}, s.Control.Now()
	if p.Preview, err = s.Control.NextRuns(r.ctx, job, 5); err != nil {
		p.Broken = publicText(err)
	}
	times, err := s.Control.RunTimes(r.ctx, r.namespace, []belfry.ID{job.ID}, now.AddDate(0, 0, -heatDays-1), heatRuns)
	if err != nil {
		return err
	}
	mine := times[job.ID]
	days := daysOf(mine, heatDays, now, zoneOf(job.Timezone), heatRuns)
	p.Heat, p.Counted, p.Durations = heatMap(days), days[0].counted, drawDurations(mine)
	p.Runs, _, err = list(r, []string{"status"}, pageSize/2, func(ctx context.Context, namespace string, f belfry.JobRunFilter, page store.Page) ([]belfry.Run, store.Position, error) {
		return s.Control.JobRuns(ctx, namespace, job.ID.String(), f, page)
	})
	if err != nil {
		return err
	}
	if p.Revisions, err = s.revisions(r, job); err != nil {
		return err
	}
	if p.Changes, _, err = s.Control.ListAudit(r.ctx, r.namespace, belfry.AuditFilter{Job: job.ID.String()}, store.Page{Limit: 10}); err != nil {
		return err
	}
	if p.At != "" {
		if why, err := s.Control.Explain(r.ctx, r.namespace, job.ID.String(), strings.Replace(p.At, "T", " ", 1)); err != nil {
			p.WhyError = publicText(err)
		} else {
			p.Why = &why
		}
	}
	p.Facts = facts(job.Manifest, job.Timezone, "name", "schedule", "timezone", "payload", "status", "description", "tags")
	p.Payload = jsonText(job.Payload)
	return r.show("job.html", "jobs", jobTitle(job.Name, job.ID), p)
}

// publicText is what a person may know of an error.
func publicText(err error) string {
	e, ok := errors.AsType[*belfry.Error](err)
	if !ok || e.Code == belfry.Internal {
		return "Something went wrong. The log of the server has the cause."
	}
	return sentence((&belfry.Error{Message: e.Message, Fields: e.Fields}).Error())
}

// revisions are the latest revisions of a job, with what each changed.
func (s *server) revisions(r *request, job belfry.Job) (list []revision, err error) {
	found, _, err := s.Control.Revisions(r.ctx, r.namespace, job.ID.String(), store.Page{Limit: 11})
	if belfry.CodeOf(err) == belfry.NotFound { // of a deleted job
		return nil, nil
	}
	for i, rev := range found {
		entry := revision{Revision: rev}
		if i+1 < len(found) {
			entry.Changes = differences(found[i+1], rev)
		}
		if i < 10 {
			list = append(list, entry)
		}
	}
	return list, err
}

// differences are the fields that differ between two revisions.
func differences(before, after belfry.Revision) (changes []belfry.FieldChange) {
	old, new := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	_ = json.Unmarshal(belfry.MustJSON(before), &old) // it was just written
	_ = json.Unmarshal(belfry.MustJSON(after), &new)
	for _, f := range schema.For[belfry.Revision]().Fields {
		if name := f.Name; name != "revision" && name != "replaced_at" && !bytes.Equal(old[name], new[name]) {
			changes = append(changes, belfry.FieldChange{Field: name, Old: old[name], New: new[name]})
		}
	}
	return changes
}

// actOnJob changes a job, or runs it.
func (s *server) actOnJob(r *request) error {
	ref, action := r.PathValue("job"), r.PathValue("action")
	job, err := s.Control.Get(r.ctx, r.namespace, ref)
	if err != nil {
		return err
	}
	id := job.ID.String()
	switch action {
	case "trigger":
		var t belfry.Trigger
		if text := strings.TrimSpace(r.PostFormValue("payload")); text != "" {
			if t.Payload = jsonOrText(text); !json.Valid(t.Payload) {
				return belfry.Errorf(belfry.Invalid, "the payload is not JSON")
			}
		}
		result, err := s.Control.Trigger(r.ctx, r.namespace, id, t, noKey)
		return r.finish(err, "/runs/"+result.RunID.String(), "trigger")
	case "pause":
		_, err = s.Control.Pause(r.ctx, r.namespace, id)
	case "resume":
		_, err = s.Control.Resume(r.ctx, r.namespace, id, belfry.Resume{CatchUp: r.PostFormValue("catch_up") != ""})
	case "cancel", "delete":
		if !r.confirmed() {
			return r.confirmEnd(job, action)
		}
		if action == "cancel" {
			_, err = s.Control.CancelJob(r.ctx, r.namespace, id)
			break
		}
		return r.finish(s.Control.Delete(r.ctx, r.namespace, id, "", control.DeleteOptions{}), "/jobs", "deleted")
	case "rollback":
		var b belfry.Rollback
		if _, err := fmt.Sscan(r.PostFormValue("revision"), &b.Revision); err != nil {
			return belfry.Errorf(belfry.Invalid, "choose a revision")
		}
		_, err = s.Control.Rollback(r.ctx, r.namespace, id, b)
	case "backfill":
		return s.backfill(r, job)
	}
	return r.finish(err, jobPath(job), action)
}

func jobPath(job belfry.Job) string { return "/jobs/" + job.ID.String() }

func (r *request) confirmEnd(job belfry.Job, action string) error {
	name := jobTitle(job.Name, job.ID)
	c := confirmation{Title: "Delete " + name + "?", Text: "Nothing more is planned, and the name is free again. Live runs finish, and the history is kept.", Button: "Delete the job", Danger: true, Back: jobPath(job)}
	if action == "cancel" {
		c.Title, c.Text, c.Button = "Cancel "+name+"?", "Its live runs are cancelled, and nothing more is planned until you resume it.", "Cancel the job"
	}
	return r.confirm("jobs", c)
}

// jsonOrText is JSON as it is, and anything else as a JSON string.
func jsonOrText(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return belfry.MustJSON(text)
}

// backfill shows which occurrences would run, and runs them when that is confirmed.
func (s *server) backfill(r *request, job belfry.Job) error {
	b, zone := belfry.Backfill{DryRun: !r.confirmed()}, zoneOf(job.Timezone)
	for name, to := range map[string]*time.Time{"from": &b.From, "to": &b.To} {
		text := strings.Replace(strings.TrimSpace(r.PostFormValue(name)), " ", "T", 1)
		if text == "" && name == "to" {
			continue
		}
		at, err := time.ParseInLocation("2006-01-02T15:04", text[:min(len(text), 16)], zone)
		if err != nil {
			return &belfry.Error{Code: belfry.Invalid, Message: "the backfill is not valid", Fields: []belfry.FieldError{{Field: name, Message: "must be a date and time, such as 2027-03-01 09:00"}}}
		}
		*to = at
	}
	result, err := s.Control.Backfill(r.ctx, r.namespace, job.ID.String(), b, noKey)
	switch {
	case err != nil:
		return err
	case r.confirmed():
		return r.redirect(jobPath(job), "backfill", "n", len(result.RunIDs))
	case result.Count == 0:
		return belfry.Errorf(belfry.Invalid, "the schedule has no occurrence in that time")
	}
	var items []string
	for _, at := range result.Instants {
		items = append(items, at.In(zone).Format("Mon 2 Jan 2006 15:04:05 MST"))
	}
	text := "They run again whether they ran before or not, oldest first."
	if result.More {
		text += " There are more: these are the first."
	}
	name := counted(result.Count, "past occurrence")
	return r.confirm("jobs", confirmation{Title: "Run " + name + " of " + jobTitle(job.Name, job.ID) + "?", Text: text, Items: items, Button: "Run " + name, Back: jobPath(job)})
}
