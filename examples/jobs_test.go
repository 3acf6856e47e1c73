//go:build unix

package examples

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// jobStatus is a job as the server shows it.
type jobStatus struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Handler   string `json:"handler"`
	Revision  int    `json:"revision"`
	UpdatedAt string `json:"updated_at"`
	NextRunAt string `json:"next_run_at"`
}

func (s *server) jobs() (all map[string]jobStatus) {
	s.t.Helper()
	var list []jobStatus
	s.request("GET", "/jobs", nil, &list)
	all = map[string]jobStatus{}
	for _, j := range list {
		all[j.Name] = j
	}
	return all
}

// belfry runs the command line with the server and returns its output, which must
// contain the words.
func (s *server) belfry(words []string, args ...string) string {
	s.t.Helper()
	out, err := command(append(s.env(), "HOME="+s.t.TempDir()), "belfry", args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("belfry %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, word := range words {
		if !strings.Contains(string(out), word) {
			s.t.Errorf("belfry %s does not say %q:\n%s", strings.Join(args, " "), word, out)
		}
	}
	return string(out)
}

func TestJobsFile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	names := []string{"charge-subscriptions", "greet", "weekly-report"}

	s.belfry(names, "job", "apply", "-f", "jobs.yaml", "--dry-run")
	if jobs := s.jobs(); len(jobs) != 0 {
		t.Errorf("a dry run made %v", jobs)
	}
	s.belfry(append(names, "created"), "job", "apply", "-f", "jobs.yaml")
	first := s.jobs()
	for _, want := range []jobStatus{
		{Name: "charge-subscriptions", Type: "http"},
		{Name: "weekly-report", Type: "worker", Handler: "send-report"},
		{Name: "greet", Type: "worker", Handler: "greet"},
	} {
		got := first[want.Name]
		if got.Type != want.Type || got.Handler != want.Handler || got.Revision != 1 || got.NextRunAt == "" {
			t.Errorf("%s is %+v", want.Name, got)
		}
	}
	s.belfry(append(names, "unchanged"), "job", "apply", "-f", "jobs.yaml")
	for name, job := range s.jobs() {
		if job != first[name] {
			t.Errorf("applied twice, %+v became %+v", first[name], job)
		}
	}

	// The example workers have the handlers of the file.
	goWorker := start(t, s.env(), "worker-go")
	goWorker.says(`serving`)
	if run := s.trigger("weekly-report", nil); run.Output != "sent to 1" {
		t.Errorf("the report is %+v", run)
	}
	if code := goWorker.end(syscall.SIGTERM); code != 0 {
		t.Errorf("the Go worker ended with %d", code)
	}
	startPython(t, s)
	if run := s.trigger("greet", nil); !strings.HasPrefix(run.Output, "hello, world") {
		t.Errorf("the greeting is %+v", run)
	}
}

func TestJobsFilePrune(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(job{"name": "by-hand", "schedule": "0 0 1 1 *", "payload": job{}})
	s.belfry(nil, "job", "apply", "-f", "jobs.yaml")
	text, err := os.ReadFile("jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "  - name: greet\n")
	if at < 0 {
		t.Fatal("greet is not the last job of the file")
	}
	rest := filepath.Join(t.TempDir(), "rest.yaml")
	if err := os.WriteFile(rest, text[:at], 0o600); err != nil {
		t.Fatal(err)
	}
	s.belfry([]string{"greet"}, "job", "apply", "-f", rest, "--prune", "--tag", "shop", "--dry-run")
	if jobs := s.jobs(); len(jobs) != 4 {
		t.Errorf("a dry run left %v", jobs)
	}
	s.belfry([]string{"greet", "unchanged"}, "job", "apply", "-f", rest, "--prune", "--tag", "shop")
	var left []string
	for name := range s.jobs() {
		left = append(left, name)
	}
	if slices.Sort(left); !slices.Equal(left, []string{"by-hand", "charge-subscriptions", "weekly-report"}) {
		t.Errorf("there are %v", left)
	}
}
