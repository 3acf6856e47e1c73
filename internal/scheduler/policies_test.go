package scheduler

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
)

var rewrite = flag.Bool("rewrite", false, "write what the examples in the documentation come to into it")

const policiesPage = "../../docs/policies.md"

// The page about policies shows jobs, what is done to them and what becomes of
// their occurrences. All of it is done again here.
func TestTheExamplesInTheDocumentationAreTrue(t *testing.T) {
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
			out = append(out, perform(t, example)...)
			inside = false
		case inside && (strings.HasPrefix(l, "> ") || strings.HasPrefix(l, "{")):
			example = append(example, l)
			continue
		case inside:
			continue // what it came to before
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
			t.Fatalf("around line %d the page has what is not true; to see the difference: go test ./internal/scheduler -run Documentation -rewrite\nit should be %q", i+1, l)
		}
	}
}

// perform does what an example says and gives what it comes to.
func perform(t *testing.T, example []string) (lines []string) {
	t.Run(example[0], func(t *testing.T) {
		inBubble(t, func(b *bubble) {
			p := &play{bubble: b, control: control.New(b.store, plan.Defaults{})}
			p.begin(example[0])
			p.start(b.store)
			for _, l := range example[1:] {
				p.act(strings.TrimPrefix(l, "> "))
			}
			lines = p.lines
			if !p.told {
				lines = append(p.ledger(), p.lines...)
			}
		})
	})
	return lines
}

// play is an example that is being performed.
type play struct {
	*bubble
	control *control.Control
	job     belfry.ID
	lines   []string // what was asked for on the way
	told    bool     // that is all that the example is about
}

// begin creates the job of an example.
func (p *play) begin(text string) {
	p.Helper()
	d := control.Draft{Spec: belfry.DefaultSpec(), Payload: json.RawMessage(`{"url": "https://example.com/hook"}`)}
	given := struct {
		Name string
		*belfry.Spec
	}{Spec: &d.Spec}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&given); err != nil {
		p.Fatalf("%s: %v", text, err)
	}
	d.Name = given.Name
	job, err := p.control.Create(p.Context(), "default", d, control.Key{})
	if err != nil {
		p.Fatalf("%s: %v", text, err)
	}
	p.job = job.ID
}

// ledger lists the runs and skips of the job, oldest first.
func (p *play) ledger() (lines []string) {
	p.Helper()
	runs := p.runs(p.job)
	slices.SortStableFunc(runs, func(a, b belfry.Run) int {
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), -cmp.Compare(a.Kind, b.Kind))
	})
	for _, run := range runs {
		line := fmt.Sprintf("%-14s %-9s", shown(run.ScheduledAt), run.Status)
		if run.Kind != belfry.KindScheduled {
			line = fmt.Sprintf("%-14s %-9s", shown(run.ScheduledAt)+" "+string(run.Kind), run.Status)
		}
		if run.Status == belfry.RunSkipped && run.SkippedCount > 1 {
			line = fmt.Sprintf("%-14s %-9s", shown(run.ScheduledAt)+" to "+shown(*run.SkippedTo), run.Status)
		}
		lines = append(lines, strings.TrimRight(line+" "+p.facts(run), " "))
	}
	return lines
}

// facts are what there is to say of a run beside its state.
func (p *play) facts(run belfry.Run) string {
	var parts []string
	if run.Status == belfry.RunSkipped {
		if run.SkippedCount > 1 {
			parts = append(parts, fmt.Sprintf("%d occurrences", run.SkippedCount))
		}
		return strings.Join(append(parts, string(run.Reason)), ", ")
	}
	var starts []string
	for _, call := range p.of(run.ID) {
		starts = append(starts, shown(call.at))
	}
	if len(starts) > 0 {
		parts = append(parts, "started "+strings.Join(starts, ", "))
	}
	if run.Reason != "" {
		parts = append(parts, string(run.Reason))
	}
	return strings.Join(parts, "; ")
}

// shown is an instant as an example has it, with its day if that is not the first.
func shown(at time.Time) string {
	layout := "15:04:05"
	if at.Second() == 0 {
		layout = "15:04"
	}
	if at.YearDay() != 1 {
		layout = "Jan 2 " + layout
	}
	return at.UTC().Truncate(time.Second).Format(layout)
}
