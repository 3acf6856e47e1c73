package api_test

import (
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/schema"
)

func readDocs(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	docsCode   = regexp.MustCompile("`([^`]+)`")
	docsMethod = regexp.MustCompile(`^([A-Z]+) (/\S*)$`)
)

func TestDocsListEveryOperation(t *testing.T) {
	text := readDocs(t, "api.md")
	table := text[:strings.Index(text, "## A job")]
	var got []string
	for row := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 3 || !strings.Contains(cells[1], "`") {
			continue
		}
		method, first := "GET", ""
		for _, code := range docsCode.FindAllStringSubmatch(cells[1], -1) {
			path := code[1]
			if m := docsMethod.FindStringSubmatch(path); m != nil {
				method, path = m[1], m[2]
				first = path
			} else if first != "" && !strings.HasPrefix(path, "/dead-letters") { // "/resume" after "POST /jobs/{job}/pause"
				path = first[:strings.LastIndex(first, "/")] + path
			}
			path, _, _ = strings.Cut(path, "?")
			if path != "/livez" && path != "/readyz" && path != "/metrics" && !strings.HasPrefix(path, "/ping/") {
				path = "/api/v1" + path
			}
			got = append(got, method+" "+path)
		}
	}
	var want []string
	for _, op := range api.OperationsOf(newService(t).Handler) {
		if op.ID != "getIndex" && op.ID != "getOpenAPI" && op.ID != "getReference" { // in the text
			want = append(want, op.Method+" "+op.Path)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/api.md (-operations +docs):\n%s", diff)
	}
}

func TestDocsListEveryFieldOfAJob(t *testing.T) {
	_, text, _ := strings.Cut(readDocs(t, "api.md"), "## A job")
	table, _, _ := strings.Cut(text, "Names may also")
	var got []string
	for row := range strings.SplitSeq(table, "\n") {
		if cells := strings.Split(row, "|"); len(cells) > 3 {
			for _, code := range docsCode.FindAllStringSubmatch(cells[1], -1) {
				got = append(got, code[1])
			}
		}
	}
	want := slices.Clone(schema.For[belfry.Manifest]().Names())
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/api.md (-fields +docs):\n%s", diff)
	}
}

// The bodies in docs/workers.md are decoded as the server decodes them.
func TestDocsOfWorkersHaveValidBodies(t *testing.T) {
	sections := strings.Split(readDocs(t, "workers.md"), "**`POST /api/v1/workers/{worker}/")[1:]
	types := map[string]reflect.Type{"heartbeat": reflect.TypeFor[belfry.Heartbeat](), "claim": reflect.TypeFor[belfry.Claim](), "finish": reflect.TypeFor[belfry.FinishRequest]()}
	count := 0
	for _, section := range sections {
		name, rest, _ := strings.Cut(section, "`")
		_, block, _ := strings.Cut(rest, "```json\n")
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			count++
			line = strings.NewReplacer(`"token": "…"`, `"token": "9f86d081884c7d659a2feaa0c55ad015"`, "…", unknownID).Replace(line)
			errors, syntax := schema.Decode([]byte(line), reflect.New(types[name]).Interface())
			if syntax != nil || len(errors) > 0 {
				t.Errorf("%s: %s: %v %v", name, line, errors, syntax)
			}
		}
	}
	if count != 6 {
		t.Errorf("%d bodies were checked", count)
	}
}

// The problem document in docs/api.md is what the server answers.
func TestDocsHaveARealProblem(t *testing.T) {
	s := newService(t)
	p := s.send("POST", "/api/v1/jobs", strings.Replace(validJob, "30 9 * * MON-FRI", "61 9 * * *", 1)).problem(t)
	if p.Status != http.StatusUnprocessableEntity || p.Detail != "the job is not valid" {
		t.Errorf("got %+v", p)
	}
	if text := strings.ReplaceAll(readDocs(t, "api.md"), `\"`, `"`); !strings.Contains(text, p.Errors[0].Message) {
		t.Errorf("docs/api.md does not have %q", p.Errors[0].Message)
	}
}
