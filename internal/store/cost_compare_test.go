package store_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	costFile   = "testdata/costs.json"
	costGrowth = 1.10 // more is a regression
)

var rewrite = flag.Bool("rewrite", false, "write the measured costs into "+costFile)

// costs is the content of costFile.
type costs struct {
	PostgreSQL  int             `json:"postgresql"` // the major version that they were measured with
	PerThousand map[string]cost `json:"per_thousand"`
}

// compare says which costs have grown since they were committed.
func (measured costs) compare(committed costs) (problems []string) {
	for line := range measured.lines(committed) {
		if line.is > costGrowth*line.was && measured.comparable(committed, line) {
			problems = append(problems, line.String())
		}
	}
	return problems
}

// comparable reports whether the difference can be ours: how PostgreSQL executes a statement depends on its version.
func (measured costs) comparable(committed costs, line costLine) bool {
	return measured.PostgreSQL == committed.PostgreSQL || !strings.HasPrefix(line.path, "postgres") || line.counted != buffers && line.counted != walBytes
}

// costLine compares one figure with the committed one, which is 0 if there is none.
type costLine struct {
	path, counted string
	was, is       float64
}

func (l costLine) String() string {
	change := "new"
	if l.was > 0 {
		change = fmt.Sprintf("%+.1f %%", 100*(l.is/l.was-1))
	}
	return fmt.Sprintf("%s: %s per thousand: %.0f, committed %.0f (%s)", l.path, l.counted, l.is, l.was, change)
}

// lines are all figures in the order of their names.
func (measured costs) lines(committed costs) func(yield func(costLine) bool) {
	return func(yield func(costLine) bool) {
		for _, path := range slices.Sorted(maps.Keys(measured.PerThousand)) {
			for _, counted := range slices.Sorted(maps.Keys(measured.PerThousand[path])) {
				was, is := committed.PerThousand[path][counted], measured.PerThousand[path][counted]
				if !yield(costLine{path, counted, float64(was), float64(is)}) {
					return
				}
			}
		}
	}
}

// readCosts reads what is committed; nothing is an empty value.
func readCosts(t *testing.T) (c costs) {
	t.Helper()
	text, err := os.ReadFile(costFile)
	if os.IsNotExist(err) {
		return c
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// commit prints the measured costs beside the committed ones, and replaces these.
func (measured costs) commit(t *testing.T) {
	t.Helper()
	if measured.PostgreSQL == 0 {
		t.Fatal("the costs of PostgreSQL were not measured, so the committed ones stay")
	}
	for line := range measured.lines(readCosts(t)) {
		fmt.Println(line)
	}
	text, err := json.MarshalIndent(measured, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(costFile), 0o755)
	}
	if err == nil {
		err = os.WriteFile(costFile, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c cost) add(d cost) {
	for counted, n := range d {
		c[counted] += n
	}
}

func (c cost) minus(d cost) cost {
	difference := cost{}
	for counted, n := range c {
		difference[counted] = n - d[counted]
	}
	return difference
}

// least returns the least of each figure.
func least(all []cost) cost {
	out := maps.Clone(all[0])
	for _, c := range all[1:] {
		for counted, n := range c {
			out[counted] = min(out[counted], n)
		}
	}
	return out
}

func TestGrownCostsAreFound(t *testing.T) {
	committed := costs{15, map[string]cost{
		"postgres: runs": {allocations: 1000, statements: 2, buffers: 500, walBytes: 9000},
		"sqlite: runs":   {allocations: 1000, walBytes: 9000},
	}}
	for _, tt := range []struct {
		name       string
		postgresql int
		path       string
		change     cost
		want       string
	}{
		{"nothing", 15, "sqlite: runs", cost{}, ""},
		{"less", 15, "sqlite: runs", cost{allocations: 1}, ""},
		{"10 % more", 15, "sqlite: runs", cost{allocations: 1100}, ""},
		{"more", 15, "sqlite: runs", cost{allocations: 1101}, "sqlite: runs: allocations per thousand: 1101, committed 1000 (+10.1 %)"},
		{"one statement", 15, "postgres: runs", cost{statements: 3}, "postgres: runs: statements per thousand: 3, committed 2 (+50.0 %)"},
		{"a path that was never measured", 15, "sqlite: others", cost{walBytes: 1}, "sqlite: others: wal_bytes per thousand: 1, committed 0 (new)"},
		{"pages of another PostgreSQL", 16, "postgres: runs", cost{buffers: 900, walBytes: 19000}, ""},
		{"statements to another PostgreSQL", 16, "postgres: runs", cost{statements: 3}, "postgres: runs: statements per thousand: 3, committed 2 (+50.0 %)"},
		{"SQLite beside another PostgreSQL", 16, "sqlite: runs", cost{walBytes: 19000}, "sqlite: runs: wal_bytes per thousand: 19000, committed 9000 (+111.1 %)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			measured := costs{tt.postgresql, maps.Clone(committed.PerThousand)}
			changed := cost{}
			changed.add(committed.PerThousand[tt.path])
			maps.Copy(changed, tt.change)
			measured.PerThousand[tt.path] = changed
			if got := strings.Join(measured.compare(committed), "\n"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
