package scheduler

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

var rewrite = flag.Bool("rewrite", false, "write the results of the examples into the documentation")

const policiesPage = "../../docs/policies.md"

// The page about policies shows jobs, what is done to them and the resulting runs and
// skips. The test runs every example.
func TestPolicyExamplesInTheDocumentation(t *testing.T) {
	content, err := os.ReadFile(policiesPage)
	if err != nil {
		t.Fatal(err)
	}
	var out, example []string
	inside, examples := false, 0
	for l := range strings.SplitSeq(string(content), "\n") {
		switch {
		case l == "```job":
			inside, example = true, nil
		case l == "```" && inside:
			examples++
			out = append(out, example...)
			out = append(out, runExample(t, example)...)
			inside = false
		case inside && (strings.HasPrefix(l, "> ") || strings.HasPrefix(l, "{")):
			example = append(example, l)
			continue
		case inside:
			continue // the result before
		}
		out = append(out, l)
	}
	got := strings.Join(out, "\n")
	if examples < 25 {
		t.Errorf("only %d examples were run: the test does not understand the page", examples)
	}
	if *rewrite {
		if err := os.WriteFile(policiesPage, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := strings.Split(string(content), "\n")
	for i, l := range out {
		if i >= len(want) || l != want[i] {
			t.Fatalf("around line %d the page is not true; to see the difference: go test ./internal/scheduler -run Documentation -rewrite\nit should be %q", i+1, l)
		}
	}
}

// runExample runs an example and returns its result.
func runExample(t *testing.T, example []string) (lines []string) {
	t.Run(example[0], func(t *testing.T) {
		inBubble(t, func(b *bubble) {
			p := &docExample{bubble: b, control: control.New(b.store, plan.Defaults{})}
			p.create(example[0])
			p.start(b.store)
			for _, l := range example[1:] {
				p.do(strings.TrimPrefix(l, "> "))
			}
			lines = p.lines
			if !p.linesOnly {
				lines = append(p.listRuns(), p.lines...)
			}
		})
	})
	return lines
}

// docExample is an example that is being run.
type docExample struct {
	*bubble
	control   *control.Control
	job       belfry.ID
	ref       string   // the id of the job as text
	lines     []string // output of commands
	linesOnly bool     // the runs are not listed
}

// create creates the job of an example.
func (p *docExample) create(text string) {
	p.Helper()
	m := belfry.Manifest{Payload: json.RawMessage(`{"url": "https://example.com/hook"}`)}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		p.Fatalf("%s: %v", text, err)
	}
	job, err := p.control.Create(p.Context(), "default", validate.Input{Manifest: m}, control.Key{})
	if err != nil {
		p.Fatalf("%s: %v", text, err)
	}
	p.job, p.ref = job.ID, job.ID.String()
}

// listRuns lists the runs and skips of the job, oldest first.
func (p *docExample) listRuns() (lines []string) {
	p.Helper()
	runs := p.runs(p.job)
	slices.SortStableFunc(runs, func(a, b belfry.Run) int {
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), -cmp.Compare(a.Kind, b.Kind))
	})
	for _, run := range runs {
		line := fmt.Sprintf("%-14s %-9s", formatTime(run.ScheduledAt), run.Status)
		if run.Kind != belfry.KindScheduled {
			line = fmt.Sprintf("%-14s %-9s", formatTime(run.ScheduledAt)+" "+string(run.Kind), run.Status)
		}
		if run.Status == belfry.RunSkipped && run.SkippedCount > 1 {
			line = fmt.Sprintf("%-14s %-9s", formatTime(run.ScheduledAt)+" to "+formatTime(*run.SkippedTo), run.Status)
		}
		lines = append(lines, strings.TrimRight(line+" "+p.describe(run), " "))
	}
	return lines
}

// describe says what there is to know of a run besides its status.
func (p *docExample) describe(run belfry.Run) string {
	var parts []string
	if run.Status == belfry.RunSkipped {
		if run.SkippedCount > 1 {
			parts = append(parts, fmt.Sprintf("%d occurrences", run.SkippedCount))
		}
		return strings.Join(append(parts, string(run.Reason)), ", ")
	}
	var starts []string
	for _, call := range p.callsOf(run.ID) {
		starts = append(starts, formatTime(call.at))
	}
	if len(starts) > 0 {
		parts = append(parts, "started "+strings.Join(starts, ", "))
	}
	if run.Reason != "" {
		parts = append(parts, string(run.Reason))
	}
	return strings.Join(parts, "; ")
}

// formatTime is an instant as an example has it, with its day if that is not the first.
func formatTime(at time.Time) string {
	layout := "15:04:05"
	if at.Second() == 0 {
		layout = "15:04"
	}
	if at.YearDay() != 1 {
		layout = "Jan 2 " + layout
	}
	return at.UTC().Truncate(time.Second).Format(layout)
}

// docCommands are the commands that an example may have.
var docCommands = []struct {
	pattern *regexp.Regexp
	run     func(p *docExample, args []string)
}{
	{commandPattern(`each run takes (\S+)`), func(p *docExample, args []string) { p.handlerTime = p.duration(args[1]) }},
	{commandPattern(`wait (\S+)`), func(p *docExample, args []string) { p.sleep(p.duration(args[1])) }},
	{commandPattern(`the server is down for (\S+)`), func(p *docExample, args []string) {
		p.stop()
		p.sleep(p.duration(args[1]))
		p.start(p.store)
		p.sleep(time.Second)
	}},
	{commandPattern(`pause`), func(p *docExample, _ []string) { p.must(errorOf(p.control.Pause(p.Context(), "default", p.ref))) }},
	{commandPattern(`resume( with catch_up)?`), func(p *docExample, args []string) {
		p.must(errorOf(p.control.Resume(p.Context(), "default", p.ref, belfry.Resume{CatchUp: args[1] != ""})))
	}},
	{commandPattern(`trigger`), func(p *docExample, _ []string) {
		p.must(errorOf(p.control.Trigger(p.Context(), "default", p.ref, belfry.Trigger{}, control.Key{})))
		p.sleep(time.Second)
	}},
	{commandPattern(`every attempt fails(?: with (\d+))?`), func(p *docExample, args []string) { p.failFirst(1<<30, args[1], 0) }},
	{commandPattern(`every attempt fails for good`), func(p *docExample, _ []string) {
		p.handlerResult = func(*belfry.Run) error { return belfry.Permanent(errRefused) }
	}},
	{commandPattern(`the first (\d+) attempts fail(?: with (\d+))?(?: and ask for (\S+))?`), func(p *docExample, args []string) {
		p.failFirst(number(args[1]), args[2], p.duration(args[3]))
	}},
	{commandPattern(`the first (\d+) attempts snooze for (\S+)`), func(p *docExample, args []string) {
		n, d := number(args[1]), p.duration(args[2])
		p.handlerResult = func(run *belfry.Run) error {
			if run.Attempt > n {
				return nil
			}
			return belfry.Snooze(d)
		}
	}},
	{commandPattern(`redrive`), func(p *docExample, _ []string) {
		_, err := p.store.Redrive(p.Context(), "default", []store.Redrive{{Run: p.runs(p.job)[0].ID}})
		p.must(err)
	}},
	{commandPattern(`discard`), func(p *docExample, _ []string) {
		_, err := p.store.Discard(p.Context(), "default", []belfry.ID{p.runs(p.job)[0].ID})
		p.must(err)
	}},
	{commandPattern(`backfill from (\S+) to (\S+)`), func(p *docExample, args []string) {
		p.must(errorOf(p.control.Backfill(p.Context(), "default", p.ref, belfry.Backfill{From: p.at(args[1]), To: p.at(args[2])}, control.Key{})))
	}},
	{commandPattern(`cancel the run of (\S+)`), func(p *docExample, args []string) {
		for _, run := range p.runs(p.job) {
			if run.ScheduledAt.Equal(p.at(args[1])) {
				p.must(errorOf(p.control.CancelRun(p.Context(), "default", run.ID)))
			}
		}
	}},
	{commandPattern(`cancel`), func(p *docExample, _ []string) { p.must(errorOf(p.control.CancelJob(p.Context(), "default", p.ref))) }},
	{commandPattern(`why (\S+)`), func(p *docExample, args []string) {
		explanation, err := p.control.Explain(p.Context(), "default", p.ref, p.at(args[1]).Format(time.RFC3339))
		p.must(err)
		p.lines, p.linesOnly = append(p.lines, explanation.Sentence), true
	}},
	{commandPattern(`events`), func(p *docExample, _ []string) {
		events, err := p.store.ListEvents(p.Context(), "default", belfry.EventFilter{}, store.Page{Limit: 10})
		p.must(err)
		p.linesOnly = true
		for _, e := range events {
			p.lines = append(p.lines, fmt.Sprintf("%s: %s", e.Kind, e.Message))
		}
	}},
}

func commandPattern(pattern string) *regexp.Regexp { return regexp.MustCompile(`^` + pattern + `$`) }

// do runs the command of a line.
func (p *docExample) do(line string) {
	p.Helper()
	for _, a := range docCommands {
		if args := a.pattern.FindStringSubmatch(line); args != nil {
			a.run(p, args)
			return
		}
	}
	p.Fatalf("unknown command %q", line)
}

// failFirst has the first attempts fail, with a status and a delay if they are given.
func (p *docExample) failFirst(attempts int, status string, after time.Duration) {
	p.handlerResult = func(run *belfry.Run) error {
		if run.Attempt > attempts {
			return nil
		}
		run.Report.HTTPStatus = number("0" + status)
		if after > 0 {
			return belfry.RetryAfter(errRefused, after)
		}
		return errRefused
	}
}

func (p *docExample) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func errorOf[T any](_ T, err error) error { return err }

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// duration reads a duration; none is zero.
func (p *docExample) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	p.must(err)
	return d
}

// at reads a time of the first day.
func (p *docExample) at(text string) time.Time {
	at, err := time.Parse("15:04", strings.TrimSpace(text))
	p.must(err)
	return time.Date(2000, 1, 1, at.Hour(), at.Minute(), 0, 0, time.UTC)
}
