package api

import (
	"reflect"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// readJobObject reads the members of a job, in all their spellings. A namespace
// among them must be the one that is asked in.
func readJobObject(text []byte, namespace string) (*object, *flaw) {
	o, f := readObject(text, jobFields)
	if f != nil {
		return nil, f
	}
	o.ignored, o.hints = shownFields, jobHints
	o.unfold()
	if i := o.find("namespace"); i >= 0 && string(o.members[i].value) != `"`+namespace+`"` && string(o.members[i].value) != "null" {
		o.fault("namespace", "is not the one that is asked in, which is %q; the header %s chooses another", namespace, namespaceHeader)
	}
	return o, nil
}

// readDraft takes a whole job out of a text. A member of the wrong type is a fault
// and has its default in the draft, so that the rest can be checked too. A job
// that replaces another may have any status that it was shown with.
func readDraft(text []byte, namespace string, replaces bool) (control.Draft, []belfry.FieldError, *flaw) {
	o, f := readJobObject(text, namespace)
	if f != nil {
		return control.Draft{}, nil, f
	}
	d := control.Draft{Spec: usual}
	takeDraft(o, &d)
	o.status(&d, replaces)
	d.KeepPaused = replaces && o.find("status") < 0
	return d, o.finish(), nil
}

// readPatch takes out of a text what is to change of a job. What is null gets its
// default.
func readPatch(text []byte, namespace string) (control.Patch, []belfry.FieldError, *flaw) {
	o, f := readJobObject(text, namespace)
	if f != nil {
		return nil, nil, f
	}
	patch := func(d *control.Draft) []belfry.FieldError {
		again := &object{members: o.members}
		takeDraft(again, d)
		again.status(d, false)
		return again.faults
	}
	d := control.Draft{Spec: usual}
	takeDraft(o, &d)
	o.status(&d, false)
	return patch, o.finish(), nil
}

// usual is what a job has that does not say otherwise. An instant without an offset
// needs a time zone to be given.
var usual = func() belfry.Spec {
	s := belfry.DefaultSpec()
	s.Timezone = ""
	return s
}()

// takeDraft is the one list of the members of a job, but for its status.
func takeDraft(o *object, d *control.Draft) {
	s := &d.Spec
	o.text("name", &d.Name, "")
	o.texts("tags", &d.Tags)
	o.text("type", &s.Type, usual.Type)
	o.text("handler", &s.Handler, usual.Handler)
	o.text("schedule", &s.Schedule, usual.Schedule)
	o.text("timezone", &s.Timezone, usual.Timezone)
	takeTiming(o, s)
	if m, is := o.take("payload"); is != nothing {
		if d.Payload = nil; string(m.value) != "null" {
			d.Payload = m.value
		}
	}
	o.text("missed_window", (*string)(&s.MissedWindow), string(usual.MissedWindow))
	o.whole("max_missed", &s.MaxMissed, usual.MaxMissed)
	o.whole("catch_up_window_seconds", &s.CatchUpSeconds, usual.CatchUpSeconds)
	o.text("queue", &s.Queue, usual.Queue)
	o.priority("priority", &s.Priority)
	o.text("overlap", (*string)(&s.Overlap), string(usual.Overlap))
	o.whole("max_queued", &s.MaxQueued, usual.MaxQueued)
	o.whole("timeout_seconds", &s.TimeoutSeconds, usual.TimeoutSeconds)
	takeRetries(o, s)
	o.whole("retention_days", &s.RetentionDays, usual.RetentionDays)
	o.text("idempotency_key_template", &s.IdempotencyKeyTemplate, usual.IdempotencyKeyTemplate)
}

// takeTiming takes what stands beside a schedule.
func takeTiming(o *object, s *belfry.Spec) {
	o.text("dst_gap", (*string)(&s.DSTGap), string(usual.DSTGap))
	o.text("dst_overlap", (*string)(&s.DSTOverlap), string(usual.DSTOverlap))
	o.instant("starts_at", &s.StartsAt)
	o.instant("ends_at", &s.EndsAt)
	o.whole("max_runs", &s.MaxRuns, usual.MaxRuns)
	o.whole("jitter_seconds", &s.JitterSeconds, usual.JitterSeconds)
}

// status takes whether a job is paused, in any case.
func (o *object) status(d *control.Draft, shown bool) {
	var status string
	o.text("status", &status, string(belfry.StatusScheduled))
	switch status = strings.ToLower(status); {
	case status == "":
	case status == string(belfry.StatusPaused):
		d.Paused = true
	case status == "active" || status == string(belfry.StatusScheduled):
		d.Paused = false
	case shown && slices.Contains(jobStatuses, belfry.JobStatus(status)):
		d.Paused = false
	default:
		o.fault("status", `must be "paused", or "active" for a job that is to run`)
	}
}

// jobStatuses are those that a job may be shown with.
var jobStatuses = []belfry.JobStatus{
	belfry.StatusScheduled, belfry.StatusQueued, belfry.StatusRunning, belfry.StatusPaused,
	belfry.StatusCompleted, belfry.StatusFailed, belfry.StatusCancelled,
}

// draftFields lists the members of a job that may be given.
var draftFields = func() []string {
	var fields []string
	o := &object{asked: &fields}
	takeDraft(o, new(control.Draft))
	o.status(new(control.Draft), false)
	return fields
}()

// jobFields has what stands for several of them, too.
var jobFields = append(slices.Clone(draftFields), policyField)

// shownFields lists the members that a job is shown with and that nobody can give.
// They are accepted without effect, so that what was shown can be handed back.
var shownFields = slices.DeleteFunc(fieldsOf(reflect.TypeFor[belfry.Job]()), func(name string) bool {
	return slices.Contains(draftFields, name)
})

// fieldsOf lists the members of the JSON form of a struct.
func fieldsOf(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && !f.Anonymous {
			names = append(names, name)
		}
	}
	return names
}

// jobHints is said of what people expect to be a member of a job.
var jobHints = map[string]string{
	"url":             `belongs into payload, as in "payload": {"url": "https://example.com/hook"}`,
	"method":          "belongs into payload",
	"headers":         "belongs into payload",
	"body":            "belongs into payload",
	"cron":            `is called schedule here, as in "schedule": "0 9 * * MON-FRI"`,
	"idempotency_key": "is a header of the request: Idempotency-Key; for the keys of runs there is idempotency_key_template",
}
