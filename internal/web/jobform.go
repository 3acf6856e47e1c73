package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/validate"
)

// group is a part of the form of a job.
type group struct {
	Title  string
	names  []string
	Fields []*formField
	Open   bool
}

// jobGroups are the parts after the first one, with all fields that a job has.
var jobGroups = []group{
	{Title: "Description and tags", names: []string{"description", "tags"}},
	{Title: "Request", names: []string{"payload.headers", "payload.body", "payload.sign_with"}},
	{Title: "Schedule details", names: []string{"starts_at", "ends_at", "max_runs", "jitter_seconds", "dst_gap", "dst_overlap"}},
	{Title: "Missed and overlapping runs", names: []string{"missed_window", "max_missed", "catch_up_window_seconds", "overlap", "max_queued"}},
	{Title: "Time limit and retries", names: []string{"timeout_seconds", "max_retries", "retry_on", "retry_backoff", "retry_base_seconds", "retry_cap_seconds", "retry_jitter", "retry_delays"}},
	{Title: "Queue and history", names: []string{"queue", "priority", "retention_days", "idempotency_key_template"}},
}

var commonSchedules = []option{
	{Value: "0 9 * * *", Label: "Every day at 09:00"}, {Value: "0 9 * * MON-FRI", Label: "Weekdays at 09:00"}, {Value: "*/15 * * * *", Label: "Every 15 minutes"},
	{Value: "0 * * * *", Label: "Every hour"}, {Value: "0 9 * * MON", Label: "Mondays at 09:00"}, {Value: "0 0 1 * *", Label: "The first of the month"},
}

// The type of a job is one input, and the form has inputs for both of its values.
type jobForm struct {
	Job       *belfry.Job // nil: it is new
	Version   string
	Fields    map[string]*formField
	Groups    []group
	Type      string
	Schedules []option
	Error     string
	Action    string
}

// In is an input of the first part.
func (f jobForm) In(name string) *formField { return f.Fields[name] }

func newJobForm(m belfry.Manifest, given url.Values, errors []belfry.FieldError) jobForm {
	out := jobForm{Type: cmp.Or(m.Type, belfry.TypeHTTP), Schedules: commonSchedules}
	if given != nil {
		out.Type = cmp.Or(given.Get("type"), belfry.TypeHTTP)
	}
	var request belfry.HTTPPayload
	if out.Type == belfry.TypeHTTP {
		_ = json.Unmarshal(m.Payload, &request) // what is no request leaves it empty
		m.Payload = nil
	}
	f := newForm(&m, given, nil)
	f.add(&request, "payload.", given)
	for i := range errors {
		if out.Type == belfry.TypeHTTP && errors[i].Field == "payload" {
			errors[i].Field = "payload.url"
		}
	}
	if f.mark(errors); len(errors) > 0 {
		out.Error = f.rest("The job is not valid.")
	}
	out.Fields = f.fields
	f.fields["payload"].Doc = `Any JSON that the handler expects; for a command such as '{"command": "backup", "args": ["--full"]}', for a message such as '{"connection": "orders", "topic": "invoices", "body": {}}'.`
	f.fields["schedule"].List, f.fields["timezone"].List = "schedules", "zones"
	f.fields["schedule"].Doc = "A cron expression, such as '0 9 * * *', an interval such as 'PT15M', a calendar rule, or an instant."
	for _, g := range jobGroups {
		for _, name := range g.names {
			in := f.fields[name]
			g.Fields = append(g.Fields, in)
			g.Open = g.Open || in.Error != ""
		}
		out.Groups = append(out.Groups, g)
	}
	return out
}

// readJob is the job that a form declares, as the decoder of the API reads it.
func readJob(given url.Values) (in validate.Input) {
	object := objectOf(schema.For[belfry.Manifest](), given, "")
	delete(object, "status")
	if object["type"] = belfry.MustJSON(cmp.Or(given.Get("type"), belfry.TypeHTTP)); given.Get("type") != belfry.TypeWorker {
		delete(object, "handler")
	}
	if cmp.Or(given.Get("type"), belfry.TypeHTTP) == belfry.TypeHTTP {
		object["payload"] = belfry.MustJSON(objectOf(schema.For[belfry.HTTPPayload](), given, "payload."))
	}
	in.Fields, in.Errors, _ = schema.Decoder{}.Decode(belfry.MustJSON(object), &in.Manifest) // which is JSON
	return in
}

func (s *server) newJob(r *request) error {
	return r.showJobForm(http.StatusOK, newJobForm(belfry.Manifest{}, nil, nil), nil, "")
}

func (s *server) createJob(r *request) error {
	in := readJob(r.PostForm)
	job, err := s.Control.Create(r.ctx, r.namespace, in, noKey)
	if err != nil {
		return r.jobFormError(err, in, nil)
	}
	return r.redirect(jobPath(job), "created")
}

func (s *server) editJob(r *request) error {
	job, err := s.Control.Get(r.ctx, r.namespace, r.PathValue("job"))
	if err != nil {
		return err
	}
	return r.showJobForm(http.StatusOK, newJobForm(job.Manifest, nil, nil), &job, control.Version(job))
}

// showJobForm shows the form of a new job, or of one that is edited.
func (r *request) showJobForm(status int, f jobForm, job *belfry.Job, version string) error {
	title := "New job"
	if f.Action = r.link("/jobs/new"); job != nil {
		f.Job, f.Version, f.Action, title = job, version, r.link(jobPath(*job)+"/edit"), "Edit "+jobTitle(job.Name, job.ID)
	}
	return r.showStatus(status, "jobform.html", "jobs", title, f)
}

func (s *server) saveJob(r *request) error {
	job, err := s.Control.Get(r.ctx, r.namespace, r.PathValue("job"))
	if err != nil {
		return err
	}
	in := readJob(r.PostForm)
	saved, _, err := s.Control.Put(r.ctx, r.namespace, job.ID.String(), r.PostFormValue("version"), in)
	if err != nil {
		return r.jobFormError(err, in, &job)
	}
	done := "saved"
	if control.Version(saved) == control.Version(job) {
		done = "unchanged"
	}
	return r.redirect(jobPath(job), done)
}

// jobFormError shows a form again with what is wrong.
func (r *request) jobFormError(err error, in validate.Input, job *belfry.Job) error {
	e, ok := errors.AsType[*belfry.Error](err)
	if !ok || e.Code != belfry.Invalid && e.Code != belfry.Conflict && e.Code != belfry.Changed {
		return err
	}
	f := newJobForm(in.Manifest, r.PostForm, e.Fields)
	if len(e.Fields) == 0 {
		f.Error = sentence(e.Message)
	}
	return r.showJobForm(http.StatusUnprocessableEntity, f, job, r.PostFormValue("version"))
}

type previewPart struct {
	Preview             *belfry.Preview
	Error               string
	Before              []belfry.Occurrence // that were planned before an edit
	Changes             []belfry.FieldChange
	Curl, Command, YAML string
}

// previewJob says what the schedule of a form means, and how to declare the same job
// elsewhere.
func (s *server) previewJob(r *request) error {
	in := readJob(r.PostForm)
	p := previewPart{Curl: curlOf(r, in), Command: commandOf(in), YAML: yamlOf(in)}
	request := belfry.PreviewRequest{Schedule: in.Schedule, Timezone: in.Timezone, DSTGap: in.DSTGap, DSTOverlap: in.DSTOverlap, StartsAt: in.StartsAt, EndsAt: in.EndsAt, Count: 5}
	var job belfry.Job
	if id := r.PostFormValue("job"); id != "" {
		var err error
		if job, err = s.Control.Get(r.ctx, r.namespace, id); err != nil {
			return err
		}
		request.JobID = job.ID
	}
	if in.Schedule != "" {
		preview, err := s.Control.Preview(r.ctx, request)
		if err == nil {
			p.Preview = &preview
		} else {
			p.Error = publicFields(err)
		}
	}
	if !job.ID.IsZero() && p.Error == "" {
		if diff, err := s.Control.DiffPut(r.ctx, r.namespace, job.ID.String(), "", in); err == nil {
			p.Changes = diff.Changes
		}
		if slices.ContainsFunc(p.Changes, func(c belfry.FieldChange) bool { return c.Field == "schedule" || c.Field == "timezone" }) {
			if before, err := s.Control.NextRuns(r.ctx, job, 5); err == nil {
				p.Before = before.Next
			}
		}
	}
	return r.showPart("preview", p)
}

// publicFields are the messages of an error about fields.
func publicFields(err error) string {
	e, ok := errors.AsType[*belfry.Error](err)
	if !ok || len(e.Fields) == 0 {
		return publicText(err)
	}
	var list []string
	for _, f := range e.Fields {
		list = append(list, sentence(words(f.Field)+" "+f.Message))
	}
	return strings.Join(list, " ")
}

func shellQuote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,@%+=") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// declared is the job as compact JSON, without what has its default.
func declared(in validate.Input) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(in.Manifest) // a decoded manifest has a JSON form
	return bytes.TrimSpace(out.Bytes())
}

func curlOf(r *request, in validate.Input) string {
	scheme := "http://"
	if auth.ClientOf(r.Request).Secure {
		scheme = "https://"
	}
	headers := ""
	if r.server.requiresLogin() {
		headers = ` -H "Authorization: Bearer $BELFRY_KEY"`
	}
	if r.namespace != belfry.DefaultNamespace {
		headers += " -H 'Belfry-Namespace: " + r.namespace + "'"
	}
	return fmt.Sprintf("curl -X PUT %s%s/api/v1/jobs/%s%s \\\n  -H 'Content-Type: application/json' \\\n  -d %s", scheme, r.Host, url.PathEscape(cmp.Or(in.Name, "NAME")), headers, shellQuote(string(declared(in))))
}

// commandOf is the command line that creates the job. Flags are derived from the names of
// fields as the command line does.
func commandOf(in validate.Input) string {
	out := "belfry job create " + shellQuote(cmp.Or(in.Name, "NAME"))
	add := func(t *schema.Type, v reflect.Value, without ...string) {
		for _, f := range t.Fields {
			value := f.Value(v)
			if f.ReadOnly || value.IsZero() || slices.Contains(without, f.Name) {
				continue
			}
			flag := " --" + strings.ReplaceAll(strings.TrimSuffix(f.Name, "_seconds"), "_", "-") + " "
			switch list := value.Interface().(type) {
			case []string:
				for _, item := range list {
					out += strings.TrimSuffix(strings.TrimSuffix(flag, " "), "s") + " " + shellQuote(item)
				}
			case map[string]string:
				for name, item := range list {
					out += " --header " + shellQuote(name+"="+item)
				}
			default:
				text := strings.TrimSpace(textOf(f, value))
				if strings.HasSuffix(f.Name, "_seconds") {
					text += "s"
				}
				out += flag + shellQuote(text)
			}
		}
	}
	if in.Type == belfry.TypeHTTP {
		add(schema.For[belfry.Manifest](), reflect.ValueOf(in.Manifest), "name", "type", "payload", "status", "handler")
		var payload belfry.HTTPPayload
		_ = json.Unmarshal(in.Payload, &payload)
		add(schema.For[belfry.HTTPPayload](), reflect.ValueOf(payload))
		return out
	}
	if in.Type == belfry.TypeWorker {
		in.Type = "" // which the handler says
	}
	add(schema.For[belfry.Manifest](), reflect.ValueOf(in.Manifest), "name", "status")
	return out
}

// yamlOf is the job for a file of jobs: its values are JSON, which YAML contains.
func yamlOf(in validate.Input) string {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(declared(in), &members)
	var b strings.Builder
	for _, name := range schema.For[belfry.Manifest]().Names() {
		if value, ok := members[name]; ok {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String()
}
