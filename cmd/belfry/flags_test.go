package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

// A new field of a type has a flag without a change here.
func TestEveryFieldHasAFlag(t *testing.T) {
	special := map[string]string{
		"status": "paused", "tags": "tag", "headers": "header",
		"timeout_seconds": "timeout", "jitter_seconds": "jitter", "catch_up_window_seconds": "catch-up-window",
		"retry_base_seconds": "retry-base", "retry_cap_seconds": "retry-cap",
	}
	for command, names := range map[string][]string{
		"job create":    slices.Concat(schema.For[belfry.Manifest]().Names(), schema.For[belfry.HTTPPayload]().Names()),
		"job list":      schema.For[belfry.JobFilter]().Names(),
		"job pause":     schema.For[belfry.JobFilter]().Names(),
		"run list":      schema.For[belfry.RunFilter]().Names(),
		"dead list":     schema.For[belfry.DeadFilter]().Names(),
		"dead redrive":  slices.Concat(schema.For[belfry.DeadFilter]().Names(), []string{"payload", "rate", "limit", "all", "dry_run"}),
		"schedule next": schema.For[belfry.PreviewRequest]().Names()[1:], // the schedule is an argument
	} {
		cmd, _, err := rootCommand().Find(strings.Fields(command))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			flag := strings.ReplaceAll(name, "_", "-")
			if special[name] != "" && (name != "status" || command == "job create") {
				flag = special[name]
			}
			if cmd.Flags().Lookup(flag) == nil {
				t.Errorf("%s has no flag --%s for the field %s", command, flag, name)
			}
		}
	}
}

func TestFieldFlagUsage(t *testing.T) {
	cmd, _, err := rootCommand().Find([]string{"job", "create"})
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"overlap":      "what happens to an occurrence, or a triggered run, while an earlier run of the job is alive: skip, queue, parallel (default skip)",
		"timeout":      "how long one attempt may take (default 1m)",
		"jitter":       "scheduled runs become ready later than their occurrence by a delay from 0 to this, so that jobs that are due together do not start together",
		"max-queued":   "how many runs may wait for an earlier one with overlap queue (default 100)",
		"max-runs":     "how many scheduled runs the job has in all; triggers do not count (default no limit)",
		"retry-delays": "delays such as 1s,10s,1m, one per retry; the last one repeats",
		"timezone":     "IANA time zone of the schedule (default the zone that the schedule itself names, otherwise UTC)",
		"dst-overlap":  "when a wall time runs that the clock shows twice when summer time ends: auto, first, both (default auto)",
		"body":         "body of the request; JSON, or @FILE",
	} {
		if d := cmp.Diff(want, cmd.Flags().Lookup(flag).Usage); d != "" {
			t.Errorf("the usage of --%s differs:\n%s", flag, d)
		}
	}
}

func TestFieldFlagValues(t *testing.T) {
	cmd := &cobra.Command{}
	flags := addFieldFlags[belfry.Manifest](cmd)
	filter := &cobra.Command{}
	filters := addFilterFlags[belfry.DeadFilter](&connectionFlags{}, filter)
	for _, args := range [][]string{
		{"--name", `a "b"`, "--tag", "x", "--tag", "y,z", "--timeout", "0s", "--retry-base", "1500ms", "--max-retries", "0"},
		{"--retry-delays", "500ms, 10s,1m", "--retry-jitter", "1e-1", "--priority", "8", "--payload", `{"a": 12345678901234567890}`},
	} {
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
	}
	want := members{
		"name": []byte(`"a \"b\""`), "tags": []byte(`["x","y,z"]`), "timeout_seconds": []byte("0"), "retry_base_seconds": []byte("1.5"), "max_retries": []byte("0"),
		"retry_delays": []byte("[0.5,10,60]"), "retry_jitter": []byte("0.1"), "priority": []byte(`"8"`), "payload": []byte(`{"a": 12345678901234567890}`),
	}
	if d := cmp.Diff(want, flags.object()); d != "" {
		t.Errorf("the fields differ:\n%s", d)
	}
	if err := filter.ParseFlags([]string{"--since", "7d", "--until", "2030-01-01T00:00:00+01:00", "--reason", "poison"}); err != nil {
		t.Fatal(err)
	}
	var got belfry.DeadFilter
	if err := filters.decode(&got); err != nil {
		t.Fatal(err)
	}
	if age := time.Since(got.Since); age < 7*day || age > 7*day+time.Minute || !got.Until.Equal(time.Date(2029, 12, 31, 23, 0, 0, 0, time.UTC)) || got.Reason != belfry.ReasonPoison {
		t.Errorf("the filter is %+v", got)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestOutputErrorsAreReported(t *testing.T) {
	p := withServer(t)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--handler", "h")
	for _, args := range [][]string{
		{"job", "list", "--server", p.server}, {"job", "show", "a", "-o", "json", "--server", p.server}, {"job", "pause", "a", "--server", p.server},
		{"schedule", "next", "@daily"}, {"schedule", "explain", "@daily"}, {"schedule", "check", "@daily"},
	} {
		var said strings.Builder
		if code := execute(t.Context(), args, strings.NewReader(""), brokenWriter{}, &said); code != exitOther || !strings.Contains(said.String(), "broken pipe") {
			t.Errorf("%q: exit code %d, messages %q", args, code, said.String())
		}
	}
}

func TestWideTables(t *testing.T) {
	p, _ := withDeadLetters(t, 1)
	for command, want := range map[string][]string{
		"job list":          {"ID", "TYPE", "QUEUE", "PRIORITY", "REVISION", "CREATED", "UPDATED", "TAGS", "DESCRIPTION", "RESULT AT", "ERROR"},
		"job revisions a":   {"QUEUE", "TIMEOUT", "OVERLAP", "MISSED"},
		"job runs a":        {"REVISION", "STARTED", "FINISHED", "WORKER", "KEY"},
		"run list":          {"REVISION", "STARTED", "FINISHED", "WORKER", "KEY"},
		"dead list":         {"FINGERPRINT", "KIND", "SCHEDULED", "REVISION", "KEY"},
		"dead list --group": {"LATEST RUN"},
	} {
		narrow := columns(p.ok(strings.Fields(command)...).out)
		wide := columns(p.ok(append(strings.Fields(command), "-o", "wide")...).out)
		if d := cmp.Diff(append(narrow[0], want...), wide[0]); d != "" || len(wide) != len(narrow) {
			t.Errorf("%s: the wide table has %d rows, the other %d, and its columns differ:\n%s", command, len(wide), len(narrow), d)
		}
		for _, row := range wide {
			if len(row) != len(wide[0]) {
				t.Errorf("%s: the row %q does not have the columns %q", command, row, wide[0])
			}
		}
	}
}

func TestAbsoluteTimesInTables(t *testing.T) {
	p, _ := withDeadLetters(t, 1)
	for deadline := time.Now().Add(time.Minute); len(p.ok("event", "list", "--kind", "run_dead", "--job", "a").out) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the dead run is no event after a minute")
		}
	}
	for command, count := range map[string]int{"job list": 4, "job runs a": 1, "run list": 2, "run list -o wide": 6, "dead list": 2, "dead list --group": 2, "event list --kind run_dead --job a": 1} {
		for _, flag := range []string{"--utc", "--local"} {
			out, zone := p.ok(append(strings.Fields(command), flag)...).out, time.Local
			if flag == "--utc" {
				zone = time.UTC
			}
			times := regexp.MustCompile(`\b20\d\d-\S+`).FindAllString(out, -1)
			if len(times) != count || strings.Contains(out, " ago") {
				t.Errorf("%s %s has %d absolute times, want %d:\n%s", command, flag, len(times), count, out)
			}
			for _, text := range times {
				if at, err := time.Parse(time.RFC3339, text); err != nil || at.In(zone).Format(time.RFC3339) != text {
					t.Errorf("%s %s: the time is %s, error %v", command, flag, text, err)
				}
			}
		}
	}
	p.ok("job", "create", "tokyo", "--schedule", "0 9 * * *", "--timezone", "Asia/Tokyo", "--handler", "h")
	if r := p.ok("job", "show", "tokyo", "--utc"); !strings.Contains(r.out, "T00:00:00Z (in ") || strings.Contains(r.out, "+09:00") {
		t.Errorf("job show --utc printed\n%s", r.out)
	}
	if r := p.run("job", "list", "--utc", "--local"); r.code != exitUsage || !strings.Contains(r.err, "use either --utc or --local") {
		t.Errorf("with both: %+v", r)
	}
}
