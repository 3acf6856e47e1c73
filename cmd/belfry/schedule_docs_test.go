package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/schedule"
)

var rewrite = flag.Bool("rewrite", false, "write what the examples in the documentation print into it")

const schedulesPage = "../../docs/schedules.md"

// The page about schedules shows commands with what they print, and tables of
// schedules with what they mean. All of it is run again here.
func TestScheduleExamplesInTheDocumentation(t *testing.T) {
	content, err := os.ReadFile(schedulesPage)
	if err != nil {
		t.Fatal(err)
	}
	var page docs
	got := page.run(t, string(content))
	if page.commands < 8 || page.rows < 55 {
		t.Fatalf("only %d commands and %d rows were run: the test does not understand the page", page.commands, page.rows)
	}
	if *rewrite {
		if err := os.WriteFile(schedulesPage, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := strings.Split(timeless(string(content)), "\n")
	for i, l := range strings.Split(timeless(got), "\n") {
		if i >= len(want) || l != want[i] {
			t.Fatalf("around line %d the page has what is not true; to see the difference: go test ./cmd/belfry -run Documentation -rewrite\nit should be %q", i+1, l)
		}
	}
}

// away is how far an instant is from now, which is not the same tomorrow, with the
// blanks behind it.
var away = regexp.MustCompile(`(Z +)(?:in [0-9ydhms]+|[0-9ydhms]+ ago|now) *`)

func timeless(page string) string {
	page = regexp.MustCompile(`WHEN +NOTE`).ReplaceAllString(page, "WHEN NOTE")
	return away.ReplaceAllString(page, "$1... ")
}

// docs runs a page.
type docs struct {
	commands, rows int
	table          string // the first cell of the header of the table that it is in
}

// run gives the page as it should be.
func (d *docs) run(t *testing.T, page string) string {
	var out []string
	inside := false
	for l := range strings.SplitSeq(page, "\n") {
		switch {
		case l == "```console":
			inside = true
		case l == "```":
			inside = false
		case inside && !strings.HasPrefix(l, "$ "):
			continue // what was printed before
		}
		out = append(out, d.line(t, l, inside)...)
	}
	return strings.Join(out, "\n")
}

func (d *docs) line(t *testing.T, l string, inside bool) []string {
	if command, ok := strings.CutPrefix(l, "$ "); ok && inside {
		d.commands++
		return append([]string{l}, shell(t, command)...)
	}
	cells := strings.Split(l, " | ")
	first := strings.TrimPrefix(cells[0], "| ")
	switch {
	case !strings.HasPrefix(l, "| "):
		if !strings.HasPrefix(l, "|") {
			d.table = ""
		}
		return []string{l}
	case d.table == "":
		d.table = first
		return []string{l}
	}
	expr := strings.Trim(first, "`")
	var meaning []string
	switch d.table {
	case "schedule":
		meaning = []string{explained(t, expr)}
	case "refused":
		meaning = []string{because(t, expr)}
	case "gap":
		meaning = []string{during(t, expr, "15:04", "2026-03-08T06:00:00Z", schedule.Options{}),
			during(t, expr, "15:04", "2026-03-08T06:00:00Z", schedule.Options{SkipGap: true})}
	case "overlap":
		for _, o := range []schedule.DSTOverlap{schedule.DSTAuto, schedule.DSTFirst, schedule.DSTBoth} {
			meaning = append(meaning, during(t, expr, "15:04 MST", "2026-11-01T05:00:00Z", schedule.Options{Overlap: o}))
		}
	default:
		return []string{l}
	}
	d.rows++
	return []string{"| " + strings.Join(append([]string{first}, meaning...), " | ") + " |"}
}

// shell runs a line as a shell would, as far as the page needs one, and gives what
// it prints.
func shell(t *testing.T, command string) []string {
	t.Helper()
	p := &testCLI{t: t}
	if said, rest, ok := strings.Cut(command, " | "); ok {
		p.stdin = strings.NewReader(strings.Join(quotedWords(said)[1:], " ") + "\n")
		command = rest
	}
	args := quotedWords(command)
	if args[0] != "belfry" {
		t.Fatalf("%q is not a command of ours", command)
	}
	r := p.run(args[1:]...)
	return strings.Split(strings.TrimSuffix(r.out+r.err, "\n"), "\n")
}

// quotedWords takes a line apart at its blanks, but for those in single quotes.
func quotedWords(command string) []string {
	var list []string
	for _, w := range regexp.MustCompile(`'[^']*'|[^ ]+`).FindAllString(command, -1) {
		list = append(list, strings.Trim(w, "'"))
	}
	return list
}

func explained(t *testing.T, expr string) string {
	t.Helper()
	p := &testCLI{t: t}
	return strings.TrimSuffix(p.ok("schedule", "explain", expr).out, "\n")
}

// because gives the reason for which an expression is refused.
func because(t *testing.T, expr string) string {
	t.Helper()
	p := &testCLI{t: t}
	r := p.run("schedule", "check", expr)
	if r.code != exitRefused {
		t.Errorf("%s is accepted: %+v", expr, r)
	}
	reason, _, _ := strings.Cut(strings.TrimPrefix(r.err, "belfry: schedule check: "), "\n")
	return strings.TrimPrefix(reason, "--timezone: ")
}

// during lists what the clock in New York shows when a rule fires in two hours.
func during(t *testing.T, expr, layout, from string, o schedule.Options) string {
	t.Helper()
	o.Timezone = "America/New_York"
	rule, err := schedule.Parse(expr, o)
	if err != nil {
		t.Fatal(err)
	}
	begin, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for at := rule.Next(begin.Add(-1)); at.Before(begin.Add(2 * time.Hour)); at = rule.Next(at) {
		list = append(list, at.In(schedule.Location(rule)).Format(layout))
	}
	if len(list) == 0 {
		return "–"
	}
	return strings.Join(list, ", ")
}
