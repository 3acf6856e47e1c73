package validate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schema"
)

var now = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// input is a valid job of type http.
func input(schedule string) Input {
	return Input{Manifest: belfry.Manifest{
		Spec:    belfry.Spec{Type: belfry.TypeHTTP, Schedule: schedule},
		Payload: json.RawMessage(`{"url": "https://example.com/hook"}`),
	}}
}

func create(in Input) (Result, []belfry.FieldError) {
	return New(now, plan.Defaults{}).Create(belfry.NewID(now), in)
}

// mustCreate is the job that a valid input makes.
func mustCreate(t *testing.T, in Input) belfry.Job {
	t.Helper()
	r, errors := create(in)
	if len(errors) > 0 {
		t.Fatal(errors)
	}
	job := belfry.Job{ID: belfry.NewID(now), Manifest: r.Manifest, State: belfry.JobActive}
	if r.Paused {
		job.State = belfry.JobPaused
	}
	return job
}

// edit validates an edit that gives the named fields.
func edit(job belfry.Job, change func(m *belfry.Manifest), given ...string) (Result, []belfry.FieldError) {
	m := job.Manifest
	m.Status = ""
	change(&m)
	return New(now, plan.Defaults{}).Edit(job, Input{Manifest: m, Fields: schema.FieldSet(given)})
}

// oneError wants one error of a field with some words.
func oneError(t *testing.T, errors []belfry.FieldError, field, words string) {
	t.Helper()
	if len(errors) != 1 || errors[0].Field != field || !strings.Contains(errors[0].Message, words) {
		t.Errorf("got %q, want one of %s with %q", errors, field, words)
	}
}

func fieldsOf(errors []belfry.FieldError) (fields []string) {
	for _, e := range errors {
		fields = append(fields, e.Field)
	}
	return fields
}

func TestManifestErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Input)
		field  string
		words  string
	}{
		{"a blank name", func(d *Input) { d.Name = " \t " }, "name", "blank"},
		{"a name with a line break", func(d *Input) { d.Name = "a\nb" }, "name", "control"},
		{"a name that changes the direction of writing", func(d *Input) { d.Name = "a\u202eb" }, "name", "U+202E"},
		{"a name with a mark of direction", func(d *Input) { d.Name = "a\u200f" }, "name", "U+200F"},
		{"a name with a zero-width space", func(d *Input) { d.Name = "pay\u200broll" }, "name", "U+200B at character 4"},
		{"a name with a joiner that joins nothing", func(d *Input) { d.Name = "pay\u200droll" }, "name", "U+200D"},
		{"a name with a joiner at its end", func(d *Input) { d.Name = "\U0001F468\u200d" }, "name", "U+200D"},
		{"a name with a word joiner", func(d *Input) { d.Name = "pay\u2060roll" }, "name", "U+2060"},
		{"a name with a byte order mark", func(d *Input) { d.Name = "\ufeffpayroll" }, "name", "U+FEFF"},
		{"a name with a soft hyphen", func(d *Input) { d.Name = "pay\u00adroll" }, "name", "U+00AD"},
		{"a name with a filler", func(d *Input) { d.Name = "pay\u3164roll" }, "name", "U+3164"},
		{"a name with letters that are tags", func(d *Input) { d.Name = "pay\U000E0072" }, "name", "U+E0072"},
		{"a tag with a zero-width space", func(d *Input) { d.Tags = []string{"a\u200b"} }, "tags[0]", "U+200B"},
		{"a tag with a joiner of graphemes", func(d *Input) { d.Tags = []string{"a\u034f"} }, "tags[0]", "U+034F"},
		{"a queue with a zero-width space", func(d *Input) { d.Queue = "a\u200b" }, "queue", "U+200B"},
		{"a handler with a mark of direction", func(d *Input) { d.Type, d.Handler = "worker", "a\u200e" }, "handler", "U+200E"},
		{"a name in Latin-1", func(d *Input) { d.Name = "caf\xe9" }, "name", "UTF-8"},
		{"a long name", func(d *Input) { d.Name = strings.Repeat("é", 201) }, "name", "201"},
		{"a name like an id", func(d *Input) { d.Name = "0190B0F2-0001-7000-8000-0000000000AA" }, "name", "id"},
		{"a dot as name", func(d *Input) { d.Name = " . " }, "name", "address"},
		{"two dots as name", func(d *Input) { d.Name = ".." }, "name", "address"},
		{"no type, no url and no name", func(d *Input) { d.Type, d.Payload = "", json.RawMessage(`{}`) }, "handler", `"url"`},
		{"a worker without handler and name", func(d *Input) { d.Type = "worker" }, "handler", "missing"},
		{"a worker whose name is no handler", func(d *Input) { d.Type, d.Name = "worker", "a/b" }, "handler", "cannot replace"},
		{"a handler with a slash", func(d *Input) { d.Type, d.Handler = "worker", "a/b" }, "handler", `"/"`},
		{"a handler with a line break", func(d *Input) { d.Type, d.Handler = "worker", "a\nb" }, "handler", "control"},
		{"a long handler", func(d *Input) { d.Type, d.Handler = "worker", strings.Repeat("x", 201) }, "handler", "201"},
		{"a reserved handler", func(d *Input) { d.Type, d.Handler = "worker", "HTTP" }, "handler", "Belfry itself"},
		{"a name that is reserved as handler", func(d *Input) { d.Type, d.Name = "worker", "Command" }, "handler", "Belfry itself"},
		{"a handler of a request", func(d *Input) { d.Handler = "x" }, "handler", "leave it out"},
		{"a handler beside a url", func(d *Input) { d.Type, d.Handler = "", "x" }, "handler", `"worker"`},
		{"an empty tag", func(d *Input) { d.Tags = []string{"a", " "} }, "tags[1]", "empty"},
		{"a tag with a comma", func(d *Input) { d.Tags = []string{"a,b"} }, "tags[0]", "letters"},
		{"a tag with a blank", func(d *Input) { d.Tags = []string{"a b"} }, "tags[0]", "letters"},
		{"a tag in Latin-1", func(d *Input) { d.Tags = []string{"caf\xe9"} }, "tags[0]", "letters"},
		{"a long tag", func(d *Input) { d.Tags = []string{strings.Repeat("é", 101)} }, "tags[0]", "101"},
		{"many tags", func(d *Input) { d.Tags = strings.Split("a b c d e f g h i j k l m n o p q r s t u", " ") }, "tags", "21"},
		{"a field that its tags refuse", func(d *Input) { d.Overlap = "paralel" }, "overlap", `did you mean "parallel"?`},
		{"a wrong template", func(d *Input) { d.IdempotencyKeyTemplate = "{{moon}}" }, "idempotency_key_template", "{{week}}"},
		{"a template with too few braces", func(d *Input) { d.IdempotencyKeyTemplate = "{{name}}-{week}" }, "idempotency_key_template", "has {week}, which would be the same in every key; write {{week}}"},
		{"a masked secret", func(d *Input) {
			d.Payload = json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"***"}}`)
		}, "payload.headers.Authorization", "masked"},
		{"a masked parameter", func(d *Input) { d.Payload = json.RawMessage(`{"url":"https://example.com?token=***"}`) }, "payload.url", "masked"},
		{"half a payload for a worker", func(d *Input) { d.Name, d.Type, d.Payload = "x", "worker", json.RawMessage(`[`) }, "payload", "JSON"},
		{"an unknown type", func(d *Input) { d.Type = "fax" }, "type", `"http"`},
		{"no schedule", func(d *Input) { d.Schedule = "" }, "schedule", "required"},
		{"a blank schedule", func(d *Input) { d.Schedule = " " }, "schedule", "required"},
		{"a wrong schedule", func(d *Input) { d.Schedule = "0 25 * * *" }, "schedule", "column 3"},
		{"a schedule that never fires", func(d *Input) { d.Schedule = "0 0 31 2 *" }, "schedule", "never fires"},
		{"a year that has passed", func(d *Input) { d.Schedule = "0 0 0 1 1 * 1999" }, "schedule", "never fires"},
		{"an instant without an offset", func(d *Input) { d.Schedule = "2090-01-01T09:00:00" }, "timezone", "offset"},
		{"an unknown time zone", func(d *Input) { d.Timezone = "Europe/Pariss" }, "timezone", "Pariss"},
		{"two time zones", func(d *Input) { d.Schedule, d.Timezone = "TZ=Asia/Tokyo @daily", "UTC" }, "schedule", "Asia/Tokyo"},
		{"no payload", func(d *Input) { d.Payload = nil }, "payload", "missing"},
		{"null as payload", func(d *Input) { d.Payload = json.RawMessage("null") }, "payload", "missing"},
		{"a list as payload", func(d *Input) { d.Payload = json.RawMessage("[1]") }, "payload", "object"},
		{"half a payload", func(d *Input) { d.Payload = json.RawMessage(`{"url":`) }, "payload", "object"},
		{"a large payload", func(d *Input) {
			d.Payload = json.RawMessage(`{"url":"https://example.com","body":"` + strings.Repeat("x", belfry.MaxPayload) + `"}`)
		}, "payload", "262144"},
		{"a payload without a url", func(d *Input) { d.Payload = json.RawMessage(`{"method":"POST"}`) }, "payload.url", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input("@daily")
			tt.change(&in)
			_, errors := create(in)
			oneError(t, errors, tt.field, tt.words)
		})
	}
}

func TestAllErrorsOfAManifestAtOnce(t *testing.T) {
	in := Input{
		Manifest: belfry.Manifest{
			Name: "a\x00b",
			Spec: belfry.Spec{
				Type: "fax", Schedule: "0 25 * * *", Timezone: "Paris", Overlap: "x", MissedWindow: "x",
				RetryJitter: belfry.Some(1.0), RetryBaseSeconds: belfry.Some(-1.0), RetryCapSeconds: belfry.Some(-1.0), MaxRetries: belfry.Some(-1),
			},
			Payload: json.RawMessage(`3`),
		},
		Errors: []belfry.FieldError{{Field: "overlap", Message: "must be a string"}, {Field: "bogus", Message: "is unknown"}},
	}
	_, errors := create(in)
	want := []string{"overlap", "bogus", "name", "type", "missed_window", "max_retries", "retry_base_seconds", "retry_cap_seconds", "retry_jitter",
		"timezone", "schedule", "payload"}
	if got := fieldsOf(errors); !slices.Equal(got, want) || errors[0].Message != "must be a string" {
		t.Errorf("got  %v\nwant %v", errors, want)
	}
}

func TestManifestsThatAreAccepted(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Input)
	}{
		{"the longest name", func(d *Input) { d.Name = strings.Repeat("é", 200) }},
		{"a joined emoji as name", func(d *Input) { d.Name = "\U0001F468\u200d\U0001F469" }},
		{"no retries", func(d *Input) { d.MaxRetries = belfry.Some(0) }},
		{"immediate retries", func(d *Input) {
			d.RetryBaseSeconds, d.RetryCapSeconds, d.RetryJitter = belfry.Some(0.0), belfry.Some(0.0), belfry.Some(0.0)
		}},
		{"an instant with an offset", func(d *Input) { d.Schedule = "2090-01-01T09:00:00+02:00" }},
		{"an instant on a wall clock", func(d *Input) { d.Schedule, d.Timezone = "2090-01-01T09:00", "Europe/Paris" }},
		{"one time zone, named twice", func(d *Input) { d.Schedule, d.Timezone = "TZ=Asia/Tokyo @daily", "Asia/Tokyo" }},
		{"a list for a worker", func(d *Input) { d.Type, d.Handler, d.Payload = "Worker", "x", json.RawMessage(`[1, null]`) }},
		{"nothing for a worker", func(d *Input) { d.Type, d.Handler, d.Payload = "worker", "x", nil }},
		{"a url for a worker", func(d *Input) { d.Type, d.Handler = "worker", "x" }},
		{"stars that mask nothing", func(d *Input) {
			d.Payload = json.RawMessage(`{"url":"https://example.com","body":{"stars":"***"}}`)
		}},
		{"tags of all kinds", func(d *Input) { d.Tags = []string{"team:billing", "env=Prod", "a/b.c_d-e", "größe", "a@b"} }},
		{"twenty tags and one of them twice", func(d *Input) { d.Tags = strings.Split("a b c d e f g h i j k l m n o p q r s t a", " ") }},
		{"any case", func(d *Input) { d.Type, d.RetryBackoff, d.Overlap = "HTTP", "Exponential", "Skip" }},
		{"a status that a job was shown with", func(d *Input) { d.Status = "running" }},
	} {
		in := input("@daily")
		tt.change(&in)
		r, errors := create(in)
		if len(errors) > 0 || r.Policy == nil || r.Paused {
			t.Errorf("%s: %v", tt.name, errors)
			continue
		}
		if _, err := plan.Compile(r.Manifest.Spec); err != nil {
			t.Errorf("%s: the normalized spec cannot be compiled: %v", tt.name, err)
		}
	}
}

func TestManifestIsNormalized(t *testing.T) {
	in := input(" CRON_TZ=Europe/Paris 30 9 * * MON-FRI ")
	in.Name, in.Type, in.Overlap, in.Status = "  nightly report ", "", "PARALLEL", "Paused"
	in.Tags, in.IdempotencyKeyTemplate, in.Priority = []string{"b", " a", "B", "b"}, " report-{{ week }}", belfry.PriorityHigh
	r, errors := create(in)
	m := r.Manifest
	if len(errors) > 0 || !r.Paused || m.Name != "nightly report" || m.Schedule != "CRON_TZ=Europe/Paris 30 9 * * MON-FRI" || m.Timezone != "Europe/Paris" ||
		m.Type != "http" || m.Overlap != belfry.OverlapParallel || m.MissedWindow != belfry.MissedRunOnce || m.Priority != belfry.PriorityHigh ||
		!slices.Equal(m.Tags, []string{"B", "a", "b"}) || m.IdempotencyKeyTemplate != "report-{{week}}" || string(m.Payload) != `{"url":"https://example.com/hook"}` {
		t.Errorf("got %+v, errors %v", m, errors)
	}
	if r, _ := create(input("@daily")); r.Manifest.Spec != (belfry.Spec{Type: "http", Schedule: "@daily", Timezone: "UTC"}).WithDefaults() {
		t.Errorf("defaults: %+v", r.Manifest.Spec)
	}
}

func TestKeyTemplateMayContainBraces(t *testing.T) {
	in := input("@daily")
	in.IdempotencyKeyTemplate = "{moon}-{}-{{ week }}-{ 3 }"
	if got := mustCreate(t, in).IdempotencyKeyTemplate; got != "{moon}-{}-{{week}}-{ 3 }" {
		t.Errorf("the template is %q", got)
	}
}

func TestTypeAndHandlerAreInferred(t *testing.T) {
	for _, tt := range []struct{ name, handler, payload, want string }{
		{"a url", "", `{"url":"https://example.com"}`, "http"},
		{"an escaped url", "", `{"\u0075rl":"https://example.com"}`, "http"},
		{"another case", "", `{"URL":"https://example.com"}`, "worker another case"},
		{"within", "", `{"a":{"url":"https://example.com"}}`, "worker within"},
		{"a list", "", `["url"]`, "worker a list"},
		{"nothing", "", ``, "worker nothing"},
		{"a handler", " send-invoice ", `{}`, "worker send-invoice"},
	} {
		in := input("@daily")
		in.Name, in.Type, in.Handler, in.Payload = tt.name, "", tt.handler, json.RawMessage(tt.payload)
		job := mustCreate(t, in)
		if got := strings.TrimSpace(job.Type + " " + job.Handler); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestStatusOfAnEdit(t *testing.T) {
	active, paused := mustCreate(t, input("@daily")), mustCreate(t, input("@daily"))
	paused.State = belfry.JobPaused
	for status, want := range map[belfry.JobStatus][2]bool{
		"": {false, true}, "paused": {true, true}, "PAUSED": {true, true}, "active": {false, false}, "running": {false, false},
	} {
		var got [2]bool
		for i, job := range []belfry.Job{active, paused} {
			given := schema.FieldSet{}
			if status != "" {
				given = schema.FieldSet{"status"}
			}
			r, errors := edit(job, func(m *belfry.Manifest) { m.Status = status }, given...)
			if len(errors) > 0 {
				t.Error(errors)
			}
			got[i] = r.Paused
		}
		if got != want {
			t.Errorf("%q: paused %v, want %v", status, got, want)
		}
	}
	_, errors := edit(active, func(m *belfry.Manifest) { m.Status = "asleep" }, "status")
	oneError(t, errors, "status", `"active"`)
}

func TestHandlerAndTimezoneFollowAnEdit(t *testing.T) {
	in := input("0 9 * * *")
	in.Name, in.Type, in.Payload = "send", "worker", nil
	worker := mustCreate(t, in)
	request := json.RawMessage(`{"url":"https://example.com"}`)
	for _, tt := range []struct {
		name   string
		change func(m *belfry.Manifest)
		given  []string
		want   string // type, handler and time zone, or an error
	}{
		{"another name keeps the handler", func(m *belfry.Manifest) { m.Name = "renamed" }, []string{"name"}, "worker send UTC"},
		{"another type drops the handler", func(m *belfry.Manifest) { m.Type, m.Payload = "Http", request }, []string{"type", "payload"}, "http  UTC"},
		{"but not one that is given", func(m *belfry.Manifest) { m.Type, m.Payload = "http", request }, []string{"type", "payload", "handler"}, "handler"},
		{"no type is inferred again", func(m *belfry.Manifest) { m.Type, m.Payload = "", request }, []string{"type", "payload"}, "http  UTC"},
		{"a schedule that names its zone", func(m *belfry.Manifest) { m.Schedule = "CRON_TZ=Asia/Tokyo 0 9 * * *" }, []string{"schedule"}, "worker send Asia/Tokyo"},
		{"but not beside another", func(m *belfry.Manifest) { m.Schedule = "CRON_TZ=Asia/Tokyo 0 9 * * *" }, []string{"schedule", "timezone"}, "schedule"},
		{"no zone is the default", func(m *belfry.Manifest) { m.Timezone = "" }, []string{"timezone"}, "worker send UTC"},
	} {
		r, errors := edit(worker, tt.change, tt.given...)
		got := fmt.Sprint(r.Manifest.Type, " ", r.Manifest.Handler, " ", r.Manifest.Timezone)
		if len(errors) > 0 {
			got = strings.Join(fieldsOf(errors), " ")
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q, errors %v", tt.name, got, tt.want, errors)
		}
	}
}

func TestEditKeepsMaskedSecrets(t *testing.T) {
	in := input("@daily")
	in.Payload = json.RawMessage(`{"url":"https://example.com/?token=abc","headers":{"Authorization":"Bearer xyz"}}`)
	job := mustCreate(t, in)
	r, errors := edit(job, func(m *belfry.Manifest) {
		m.Payload = json.RawMessage(`{"method":"PUT","url":"https://example.com/?token=***","headers":{"Authorization":"***"}}`)
	}, "payload")
	if want := `{"method":"PUT","url":"https://example.com/?token=abc","headers":{"Authorization":"Bearer xyz"}}`; string(r.Manifest.Payload) != want || len(errors) > 0 {
		t.Errorf("got %s, errors %v", r.Manifest.Payload, errors)
	}
	_, errors = edit(job, func(m *belfry.Manifest) {
		m.Payload = json.RawMessage(`{"url":"https://example.com/?token=***","headers":{"Authorization":"***","Cookie":"***"}}`)
	}, "payload")
	oneError(t, errors, "payload.headers.Cookie", "masked")
}

func TestEditKeepsMaskedSecretsFromOtherServers(t *testing.T) {
	in := input("@daily")
	in.Payload = json.RawMessage(`{"url":"https://example.com/a","headers":{"Authorization":"Bearer xyz"}}`)
	job := mustCreate(t, in)
	for url, refused := range map[string]bool{
		"https://example.com/a": false, "https://example.com:443/b": false, "https://EXAMPLE.com/b?c=d": false,
		"https://example.org/a": true, "http://example.com/a": true, "https://example.com:8443/a": true, "https://sub.example.com/a": true,
	} {
		r, errors := edit(job, func(m *belfry.Manifest) {
			m.Payload = json.RawMessage(`{"url":"` + url + `","headers":{"Authorization":"***"}}`)
		}, "payload")
		if refused {
			oneError(t, errors, "payload.headers.Authorization", "is masked, and it goes to another target now; give the secret itself")
		} else if len(errors) > 0 || !strings.Contains(string(r.Manifest.Payload), "Bearer xyz") {
			t.Errorf("%s: got %s, errors %v", url, r.Manifest.Payload, errors)
		}
	}
	_, errors := edit(job, func(m *belfry.Manifest) {
		m.Type, m.Handler, m.Payload = belfry.TypeWorker, "send", json.RawMessage(`{"url":"https://example.com/a","headers":{"Authorization":"***"}}`)
	}, "type", "handler", "payload")
	oneError(t, errors, "payload.headers.Authorization", "is masked, and the job is of another type now; give the secret itself")
}

func TestNamespace(t *testing.T) {
	for name, want := range map[string]bool{
		"default": true, "team-7": true, strings.Repeat("a", 63): true,
		"": false, "Team": false, "a_b": false, "a b": false, "a\n": false, strings.Repeat("a", 64): false,
	} {
		if Namespace(name) != want {
			t.Errorf("%q is valid: %v", name, !want)
		}
	}
}

// BenchmarkCreate is one line of an import whose schedules are alike.
func BenchmarkCreate(b *testing.B) {
	for _, kind := range []string{"http", "worker"} {
		b.Run(kind, func(b *testing.B) {
			v := New(now, plan.Defaults{})
			in := input("30 9 * * MON-FRI")
			in.Type, in.Timezone, in.Tags = kind, "Europe/Paris", []string{"team:billing"}
			in.Payload = json.RawMessage(`{"url": "https://example.com/hook", "headers": {"Authorization": "Bearer abc"}, "body": {"id": 17}}`)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				in.Name = fmt.Sprint("job ", i)
				if r, errors := v.Create(belfry.ID{15: byte(i)}, in); len(errors) > 0 || r.Policy.Rule.Next(now).IsZero() {
					b.Fatal(errors)
				}
				i++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}

func TestNullIsTheDefault(t *testing.T) {
	in := input("@daily")
	in.MaxRetries, in.TimeoutSeconds, in.Queue, in.Timezone, in.Status = belfry.Some(9), 7, "slow", "Asia/Tokyo", belfry.StatusPaused
	job := mustCreate(t, in)
	m := job.Manifest
	m.Status = ""
	given, errors, _ := schema.Decoder{}.Decode([]byte(`{"max_retries": null, "timeout_seconds": null, "queue": "", "timezone": null, "status": null}`), &m)
	r, errors := New(now, plan.Defaults{}).Edit(job, Input{Manifest: m, Fields: given, Errors: errors})
	m = r.Manifest
	if len(errors) > 0 || m.MaxRetries.Value() != 3 || m.TimeoutSeconds != 60 || m.Queue != "default" || m.Timezone != "UTC" || r.Paused {
		t.Errorf("got %+v, paused %v, errors %v", m, r.Paused, errors)
	}
}
