package web

import (
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestTheFormOfAJobHasAllItsFields(t *testing.T) {
	shown := []string{"name", "schedule", "timezone", "type", "handler", "payload", "payload.url", "payload.method", "status"}
	for _, g := range jobGroups {
		shown = append(shown, g.names...)
	}
	for prefix, typ := range map[string]*schema.Type{"": schema.For[belfry.Manifest](), "payload.": schema.For[belfry.HTTPPayload]()} {
		for _, f := range typ.Fields {
			if !f.ReadOnly && !slices.Contains(shown, prefix+f.Name) {
				t.Errorf("the form has no input for %s", prefix+f.Name)
			}
		}
	}
}

// What a form shows of a job is the same job when it is sent back.
func TestAFormKeepsAJob(t *testing.T) {
	m := belfry.Manifest{
		Name: "report", Tags: []string{"a", "b"}, Payload: []byte(`{"url":"https://example.com","method":"GET","headers":{"Accept":"x"},"body":{"a":[1,2]}}`),
		Spec: belfry.Spec{
			Description: "two\nlines", Type: belfry.TypeHTTP, Schedule: "0 9 * * *", Timezone: "Europe/Paris", StartsAt: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), MaxRuns: 5, JitterSeconds: 7,
			DSTGap: belfry.GapRun, DSTOverlap: belfry.DSTBoth, MissedWindow: belfry.MissedRunAll, MaxMissed: 9, CatchUpSeconds: 60, Queue: "q", Priority: "high", Overlap: belfry.OverlapQueue, MaxQueued: 3, TimeoutSeconds: 8,
			MaxRetries: belfry.Some(0), RetryOn: belfry.RetryOnServerErrors, RetryBackoff: "list", RetryBaseSeconds: belfry.Some(1.5), RetryCapSeconds: belfry.Some(0.0), RetryJitter: belfry.Some(0.1), RetryDelays: "5,30", RetentionDays: 3, IdempotencyKeyTemplate: "r-{{week}}",
		},
	}
	f, given := newJobForm(m, nil, nil), url.Values{"type": {"http"}}
	for name, in := range f.Fields {
		if in.Value != "" && name != "payload" {
			given.Set(name, in.Value)
		}
	}
	got := readJob(given)
	if len(got.Errors) > 0 {
		t.Fatalf("the form is not valid: %v", got.Errors)
	}
	if !sameJob(got.Manifest, m) {
		t.Errorf("got  %s\nwant %s", belfry.MustJSON(got.Manifest), belfry.MustJSON(m))
	}
}

func TestAFormKeepsAMessage(t *testing.T) {
	const payload = `{"connection":"orders","topic":"invoices","body":{}}`
	f := newJobForm(belfry.Manifest{Name: "invoices", Payload: []byte(payload), Spec: belfry.Spec{Type: belfry.TypeMessage, Schedule: "@daily"}}, nil, nil)
	got := readJob(url.Values{"type": {f.Type}, "name": {"invoices"}, "schedule": {"@daily"}, "payload": {f.Fields["payload"].Value}})
	if len(got.Errors) > 0 || got.Type != belfry.TypeMessage || strings.Join(strings.Fields(string(got.Payload)), "") != payload {
		t.Errorf("got %s, errors %v", belfry.MustJSON(got.Manifest), got.Errors)
	}
	if text := commandOf(got); !strings.Contains(text, "--type message") || !strings.Contains(text, "--payload") {
		t.Errorf("the command is %s", text)
	}
}

func sameJob(a, b belfry.Manifest) bool {
	payloads := jsonText(a.Payload) != "" && strings.Contains(jsonText(a.Payload), "https://example.com") && strings.Contains(jsonText(a.Payload), `"Accept": "x"`)
	a.Payload, b.Payload = nil, nil
	return payloads && reflect.DeepEqual(a, b)
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain <b> é 漢 \u00a0x": "plain <b> é 漢 \u00a0x", "a\u202eb": `a\u202eb`, "a\x1b[31m": `a\x1b[31m`, "a\r\nb\tc": "a\nb\tc", "bad\xff": `bad\xff`, "z\u200bw": `z\u200bw`, "\ufeff": `\ufeff`,
	} {
		if got := string(visible([]byte(in))); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	if got := plain("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07rest"); got != "red and rest" {
		t.Errorf("got %q", got)
	}
}

func TestRelative(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "now", 5 * time.Second: "in 5 s", -90 * time.Second: "1 min ago", 47 * time.Hour: "in 47 h", -50 * time.Hour: "2 d ago", 100 * 24 * time.Hour: "2027-01-02",
	} {
		if got := relative(d, time.Date(2027, 1, 2, 0, 0, 0, 0, time.UTC)); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
}

func TestDaysBeyondTheLimitAreNotCounted(t *testing.T) {
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2027, 4, 10, 23, 30, 0, 0, time.UTC) // the 11th in Paris
	run := func(at time.Time, status belfry.RunStatus) store.RunTime {
		return store.RunTime{ScheduledAt: at, Status: status}
	}
	times := []store.RunTime{run(now, belfry.RunSucceeded), run(now.Add(-3*time.Hour), belfry.RunDead), run(now.AddDate(0, 0, -2), belfry.RunSkipped)}
	days := daysOf(times, 30, now, paris, 100)
	if d := days[29]; d.succeeded != 1 || d.dead != 0 || !d.counted || d.at.Day() != 11 {
		t.Errorf("today is %+v", d)
	}
	if d := days[28]; d.dead != 1 {
		t.Errorf("yesterday is %+v", d)
	}
	days = daysOf(times, 30, now, paris, 3) // there may be more
	for i, d := range days {
		if want := i >= 28; d.counted != want {
			t.Errorf("day %s is counted: %v, want %v", d.at.Format(time.DateOnly), d.counted, want)
		}
	}
}

func TestPositions(t *testing.T) {
	p := store.Position{At: time.UnixMicro(1_800_000_000_123_456).UTC(), ID: belfry.NewID(time.Now())}
	if got := parsePosition(position(p)); got != p {
		t.Errorf("got %v, want %v", got, p)
	}
	for _, text := range []string{"", "x", "1.x", "zz." + p.ID.String() + "0"} {
		if got := parsePosition(text); got != (store.Position{}) {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestRetrySchedule(t *testing.T) {
	at := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	job := belfry.Job{Manifest: belfry.Manifest{Spec: belfry.Spec{MaxRetries: belfry.Some(3), RetryBackoff: "exponential", RetryBaseSeconds: belfry.Some(5.0), RetryCapSeconds: belfry.Some(100.0), RetryJitter: belfry.Some(0.0)}}}
	run := belfry.Run{Status: belfry.RunRetry, ReadyAt: at, Attempts: []belfry.Attempt{{Outcome: belfry.OutcomeFailed}, {Outcome: belfry.OutcomeInterrupted}}}
	got := retrySchedule(run, job)
	want := []time.Time{at, at.Add(10 * time.Second), at.Add(30 * time.Second)} // after 1, 2 and 3 failures
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	run.Status = belfry.RunDead
	if got := retrySchedule(run, job); got != nil {
		t.Errorf("a dead run is tried again at %v", got)
	}
}
