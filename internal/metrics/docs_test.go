package metrics

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write docs/metrics.md")

const docsHead = `# Metrics

Generated from the declarations in ` + "`internal/metrics`" + ` by ` + "`go test ./internal/metrics -rewrite`" + `. [Running nodes](operating.md#metrics) says how to
scrape a node, and what is in ` + "`deploy/`" + ` to begin with.

Labels are bounded: ` + "`queue`" + ` has the first 100 queues of a process, and ` + "`other`" + ` for the rest; ` + "`type`" + ` is the type of the job, ` + "`http`" + ` or
` + "`worker`" + `. Nothing is by job or by handler. Metrics of the *cluster* are read from the database every 10 seconds by the node that owns shard 0,
and exported by that node alone; during a hand-over two nodes may export them for a moment, so use ` + "`max by (queue, type)`" + `, not ` + "`sum`" + `, over nodes.
They are missing while the database cannot be read.

The failure rate of jobs (` + "`job_failure_rate`" + `) is a recording rule in ` + "`deploy/prometheus/rules.yaml`" + `:

` + "```" + `
%s
` + "```" + `

`

// reference is the text of docs/metrics.md.
func reference(t *testing.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, docsHead, strings.TrimSpace(failureRate(t)))
	b.WriteString("| metric | kind | labels | of | meaning |\n|---|---|---|---|---|\n")
	for _, d := range declared {
		scope := "node"
		if d.cluster {
			scope = "cluster"
		}
		var labels []string
		for _, label := range d.labels {
			labels = append(labels, "`"+label+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.name, d.kind, strings.Join(labels, ", "), scope, d.help)
	}
	b.WriteString("\nUpper bounds of the buckets of histograms, in seconds:\n\n| metric | buckets |\n|---|---|\n")
	for _, d := range declared {
		if d.kind == kindHistogram {
			fmt.Fprintf(&b, "| `%s` | %s |\n", d.name, strings.Trim(fmt.Sprint(d.buckets), "[]"))
		}
	}
	b.WriteString("\nBeside these, every node exports what the Prometheus client library knows of the Go runtime (`go_…`) and of the process (`process_…`).\n")
	return b.String()
}

func TestDocsAreUpToDate(t *testing.T) {
	const path = "../../docs/metrics.md"
	want := reference(t)
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/metrics.md is out of date, write it with: go test ./internal/metrics -rewrite (-want +got):\n%s", diff)
	}
}

func TestDeclarationsFollowTheConventions(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range declared {
		switch {
		case !strings.HasPrefix(d.name, "belfry_") || seen[d.name]:
			t.Errorf("%s: a name begins with belfry_ and is declared once", d.name)
		case (d.kind == kindCounter) != strings.HasSuffix(d.name, "_total"):
			t.Errorf("%s: the names of counters, and of nothing else, end in _total", d.name)
		case d.kind == kindHistogram && (!strings.HasSuffix(d.name, "_seconds") || len(d.buckets) == 0):
			t.Errorf("%s: a histogram has seconds and buckets", d.name)
		case !strings.HasSuffix(d.help, ".") || strings.Contains(d.help, "|"):
			t.Errorf("%s: its help is not a sentence for a table: %s", d.name, d.help)
		}
		seen[d.name] = true
	}
}
