package control_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestWhatADraftIsRefusedFor(t *testing.T) {
	c := control.New(open(t), plan.Defaults{})
	for _, tt := range []struct {
		name  string
		spoil func(*control.Draft)
		field string
		says  string
	}{
		{"a blank name", func(d *control.Draft) { d.Name = " \t " }, "name", "blank"},
		{"a name with a line break", func(d *control.Draft) { d.Name = "a\nb" }, "name", "control"},
		{"a name that turns around", func(d *control.Draft) { d.Name = "a\u202eb" }, "name", "control"},
		{"a name in Latin-1", func(d *control.Draft) { d.Name = "caf\xe9" }, "name", "UTF-8"},
		{"a long name", func(d *control.Draft) { d.Name = strings.Repeat("é", 201) }, "name", "201"},
		{"a name like an id", func(d *control.Draft) { d.Name = "0190B0F2-0001-7000-8000-0000000000AA" }, "name", "id"},
		{"a dot for a name", func(d *control.Draft) { d.Name = " . " }, "name", "address"},
		{"two dots for a name", func(d *control.Draft) { d.Name = ".." }, "name", "address"},
		{"no type, no address and no name", func(d *control.Draft) { d.Spec.Type, d.Payload = "", json.RawMessage(`{}`) }, "handler", `"url"`},
		{"a worker without handler and name", func(d *control.Draft) { d.Spec.Type = "worker" }, "handler", "missing"},
		{"a worker whose name is no handler", func(d *control.Draft) { d.Spec.Type, d.Name = "worker", "a/b" }, "handler", "cannot stand"},
		{"a handler with a slash", func(d *control.Draft) { d.Spec.Type, d.Spec.Handler = "worker", "a/b" }, "handler", `"/"`},
		{"a handler with a line break", func(d *control.Draft) { d.Spec.Type, d.Spec.Handler = "worker", "a\nb" }, "handler", "control"},
		{"a long handler", func(d *control.Draft) { d.Spec.Type, d.Spec.Handler = "worker", strings.Repeat("x", 201) }, "handler", "201"},
		{"a handler that is taken", func(d *control.Draft) { d.Spec.Type, d.Spec.Handler = "worker", "HTTP" }, "handler", "Belfry itself"},
		{"a name that is taken as a handler", func(d *control.Draft) { d.Spec.Type, d.Name = "worker", "Command" }, "handler", "Belfry itself"},
		{"a handler of a request", func(d *control.Draft) { d.Spec.Handler = "x" }, "handler", "leave it out"},
		{"a handler beside an address", func(d *control.Draft) { d.Spec.Type, d.Spec.Handler = "", "x" }, "handler", `"worker"`},
		{"an empty tag", func(d *control.Draft) { d.Tags = []string{"a", " "} }, "tags[1]", "empty"},
		{"a tag with a comma", func(d *control.Draft) { d.Tags = []string{"a,b"} }, "tags[0]", "letters"},
		{"a tag with a blank", func(d *control.Draft) { d.Tags = []string{"a b"} }, "tags[0]", "letters"},
		{"a tag in Latin-1", func(d *control.Draft) { d.Tags = []string{"caf\xe9"} }, "tags[0]", "letters"},
		{"a long tag", func(d *control.Draft) { d.Tags = []string{strings.Repeat("é", 101)} }, "tags[0]", "101"},
		{"many tags", func(d *control.Draft) { d.Tags = strings.Split("a b c d e f g h i j k l m n o p q r s t u", " ") }, "tags", "21"},
		{"no missed window", func(d *control.Draft) { d.Spec.MissedWindow = "" }, "missed_window", `must be "skip", "run_once" or "run_all"`},
		{"a wrong template", func(d *control.Draft) { d.Spec.IdempotencyKeyTemplate = "{{moon}}" }, "idempotency_key_template", "{{week}}"},
		{"a template with too few braces", func(d *control.Draft) { d.Spec.IdempotencyKeyTemplate = "{{name}}-{week}" }, "idempotency_key_template", "has {week}, which would be the same in every key; write {{week}}"},
		{"a masked secret", func(d *control.Draft) {
			d.Payload = json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"***"}}`)
		}, "payload.headers.Authorization", "masked"},
		{"a masked parameter", func(d *control.Draft) { d.Payload = json.RawMessage(`{"url":"https://example.com?token=***"}`) }, "payload.url", "masked"},
		{"half a payload for a worker", func(d *control.Draft) { d.Name, d.Spec.Type, d.Payload = "x", "worker", json.RawMessage(`[`) }, "payload", "JSON"},
		{"an unknown type", func(d *control.Draft) { d.Spec.Type = "fax" }, "type", `"http"`},
		{"no schedule", func(d *control.Draft) { d.Spec.Schedule = " " }, "schedule", "missing"},
		{"a wrong schedule", func(d *control.Draft) { d.Spec.Schedule = "0 25 * * *" }, "schedule", "column 3"},
		{"a schedule that never fires", func(d *control.Draft) { d.Spec.Schedule = "0 0 31 2 *" }, "schedule", "never fires"},
		{"a year that is over", func(d *control.Draft) { d.Spec.Schedule = "0 0 0 1 1 * 2001" }, "schedule", "never fires"},
		{"an instant without an offset", func(d *control.Draft) { d.Spec.Schedule = "2090-01-01T09:00:00" }, "timezone", "offset"},
		{"an unknown zone", func(d *control.Draft) { d.Spec.Timezone = "Europe/Pariss" }, "timezone", "Pariss"},
		{"two zones", func(d *control.Draft) { d.Spec.Schedule, d.Spec.Timezone = "TZ=Asia/Tokyo @daily", "UTC" }, "schedule", "Asia/Tokyo"},
		{"no payload", func(d *control.Draft) { d.Payload = nil }, "payload", "missing"},
		{"null for a payload", func(d *control.Draft) { d.Payload = json.RawMessage("null") }, "payload", "missing"},
		{"a list for a payload", func(d *control.Draft) { d.Payload = json.RawMessage("[1]") }, "payload", "object"},
		{"half a payload", func(d *control.Draft) { d.Payload = json.RawMessage(`{"url":`) }, "payload", "object"},
		{"a large payload", func(d *control.Draft) {
			d.Payload = json.RawMessage(`{"url":"https://example.com","body":"` + strings.Repeat("x", belfry.MaxPayload) + `"}`)
		}, "payload", "262144"},
		{"a payload without an address", func(d *control.Draft) { d.Payload = json.RawMessage(`{"method":"POST"}`) }, "payload.url", ""},
		{"an empty queue", func(d *control.Draft) { d.Spec.Queue = "" }, "queue", "1 to 100"},
		{"a queue with a slash", func(d *control.Draft) { d.Spec.Queue = "a/b" }, "queue", "letters"},
		{"an unknown overlap", func(d *control.Draft) { d.Spec.Overlap = "twice" }, "overlap", `"parallel"`},
		{"no time at all", func(d *control.Draft) { d.Spec.TimeoutSeconds = 0 }, "timeout_seconds", "86400"},
		{"more than a day", func(d *control.Draft) { d.Spec.TimeoutSeconds = 86401 }, "timeout_seconds", "86400"},
		{"negative retries", func(d *control.Draft) { d.Spec.MaxRetries = -1 }, "max_retries", "100"},
		{"endless retries", func(d *control.Draft) { d.Spec.MaxRetries = 101 }, "max_retries", "100"},
		{"an unknown backoff", func(d *control.Draft) { d.Spec.RetryBackoff = "random" }, "retry_backoff", "exponential"},
		{"a negative base", func(d *control.Draft) { d.Spec.RetryBaseSeconds = -1 }, "retry_base_seconds", "86400"},
		{"a base that is no number", func(d *control.Draft) { d.Spec.RetryBaseSeconds = math.NaN() }, "retry_base_seconds", "86400"},
		{"an endless cap", func(d *control.Draft) { d.Spec.RetryCapSeconds = math.Inf(1) }, "retry_cap_seconds", "604800"},
		{"a cap below the base", func(d *control.Draft) { d.Spec.RetryCapSeconds = 1 }, "retry_cap_seconds", "at least"},
		{"too much jitter", func(d *control.Draft) { d.Spec.RetryJitter = 0.26 }, "retry_jitter", "0.25"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := draft("@daily")
			tt.spoil(&d)
			_, err := c.Create(t.Context(), ns, d, none)
			oneFault(t, err, tt.field, tt.says)
		})
	}
}

func TestBracesThatStandForThemselves(t *testing.T) {
	c := control.New(open(t), plan.Defaults{})
	d := draft("@daily")
	d.Spec.IdempotencyKeyTemplate = "{moon}-{}-{{ week }}-{ 3 }"
	job := create(t, c, d)
	if job.IdempotencyKeyTemplate != "{moon}-{}-{{week}}-{ 3 }" {
		t.Errorf("the template is %q", job.IdempotencyKeyTemplate)
	}
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	d := control.Draft{
		Name:    "a\x00b",
		Spec:    belfry.Spec{Type: "fax", Schedule: "0 25 * * *", Timezone: "Paris", RetryJitter: 1, RetryBaseSeconds: -1, RetryCapSeconds: -1, MaxRetries: -1},
		Payload: json.RawMessage(`3`),
	}
	var fields []string
	for _, f := range control.New(open(t), plan.Defaults{}).Check(d) {
		fields = append(fields, f.Field)
	}
	want := []string{"name", "type", "missed_window", "timezone", "schedule", "payload", "queue", "overlap", "timeout_seconds",
		"max_retries", "retry_backoff", "retry_base_seconds", "retry_cap_seconds", "retry_jitter"}
	if !slices.Equal(fields, want) {
		t.Errorf("got  %v\nwant %v", fields, want)
	}
}

func TestWhatIsAllowedAtTheEdges(t *testing.T) {
	c := control.New(open(t), plan.Defaults{})
	for _, tt := range []struct {
		name string
		bend func(*control.Draft)
	}{
		{"the longest name", func(d *control.Draft) { d.Name = strings.Repeat("é", 200) }},
		{"a family for a name", func(d *control.Draft) { d.Name = "\U0001F468\u200d\U0001F469" }},
		{"a day", func(d *control.Draft) { d.Spec.TimeoutSeconds = 86400 }},
		{"no retries", func(d *control.Draft) { d.Spec.MaxRetries = 0 }},
		{"retries at once", func(d *control.Draft) { d.Spec.RetryBaseSeconds, d.Spec.RetryCapSeconds, d.Spec.RetryJitter = 0, 0, 0 }},
		{"an instant with an offset", func(d *control.Draft) { d.Spec.Schedule = "2090-01-01T09:00:00+02:00" }},
		{"an instant on a wall clock", func(d *control.Draft) { d.Spec.Schedule, d.Spec.Timezone = "2090-01-01T09:00", "Europe/Paris" }},
		{"one zone, named twice", func(d *control.Draft) { d.Spec.Schedule, d.Spec.Timezone = "TZ=Asia/Tokyo @daily", "Asia/Tokyo" }},
		{"a list for a worker", func(d *control.Draft) {
			d.Spec.Type, d.Spec.Handler, d.Payload = "Worker", "x", json.RawMessage(`[1, null]`)
		}},
		{"nothing for a worker", func(d *control.Draft) { d.Spec.Type, d.Spec.Handler, d.Payload = "worker", "x", nil }},
		{"an address for a worker", func(d *control.Draft) { d.Spec.Type, d.Spec.Handler = "worker", "x" }},
		{"stars that hide nothing", func(d *control.Draft) {
			d.Payload = json.RawMessage(`{"url":"https://example.com","body":{"stars":"***"}}`)
		}},
		{"tags of all kinds", func(d *control.Draft) { d.Tags = []string{"team:billing", "env=Prod", "a/b.c_d-e", "größe", "a@b"} }},
		{"twenty tags and one of them twice", func(d *control.Draft) { d.Tags = strings.Split("a b c d e f g h i j k l m n o p q r s t a", " ") }},
		{"any case", func(d *control.Draft) {
			d.Spec.Type, d.Spec.RetryBackoff, d.Spec.Overlap = "HTTP", "Exponential", "Skip"
		}},
	} {
		d := draft("@daily")
		tt.bend(&d)
		job, err := c.Create(t.Context(), ns, d, none)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if _, err := c.Pause(t.Context(), ns, job.ID); err != nil {
			t.Errorf("%s: the stored job cannot be compiled: %v", tt.name, err)
		}
	}
}

func TestNamespaces(t *testing.T) {
	for name, want := range map[string]bool{
		"default": true, "team-7": true, strings.Repeat("a", 63): true,
		"": false, "Team": false, "a_b": false, "a b": false, "a\n": false, strings.Repeat("a", 64): false,
	} {
		if control.ValidNamespace(name) != want {
			t.Errorf("%q is valid: %v", name, !want)
		}
	}
}
