package control_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"

	"go.uber.org/goleak"
)

const ns = controltest.Namespace

var none control.Key

func TestMain(m *testing.M) { goleak.VerifyTestMain(withServer{m}) }

// withServer stops the PostgreSQL server after the tests.
type withServer struct{ *testing.M }

func (m withServer) Run() int { return pgtest.Main(m.M) }

// newControl is a control with an empty store.
func newControl(t *testing.T) *control.Control {
	t.Helper()
	return control.New(controltest.Open(t), plan.Defaults{})
}

// inBubble runs a subtest in which time passes as soon as nothing happens.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// codeOf wants an error with a code.
func codeOf(t *testing.T, err error, want belfry.Code) {
	t.Helper()
	if err == nil || belfry.CodeOf(err) != want {
		t.Errorf("got error %v, want the code %s", err, want)
	}
}

// count returns how many jobs there are.
func count(t *testing.T, c *control.Control) int {
	t.Helper()
	jobs, _, err := c.List(t.Context(), ns, belfry.JobFilter{}, store.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return len(jobs)
}

// errorsOf returns the field errors of an error, as "field: message".
func errorsOf(t *testing.T, err error) (list []string) {
	t.Helper()
	var e *belfry.Error
	if !errors.As(err, &e) || e.Code != belfry.Invalid || len(e.Fields) == 0 {
		t.Fatalf("got error %v, want field errors", err)
	}
	for _, f := range e.Fields {
		list = append(list, f.Field+": "+f.Message)
	}
	return list
}

// oneError wants one field error with some words.
func oneError(t *testing.T, err error, field, words string) {
	t.Helper()
	if list := errorsOf(t, err); len(list) != 1 || !strings.HasPrefix(list[0], field+": ") || !strings.Contains(list[0], words) {
		t.Errorf("got %q, want one about %s with %q", list, field, words)
	}
}

// get returns a job.
func get(t *testing.T, c *control.Control, id belfry.ID) belfry.Job {
	t.Helper()
	job, err := c.Get(t.Context(), ns, id.String())
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// sameJob compares jobs as they are shown and stored.
func sameJob(t *testing.T, got, want belfry.Job) {
	t.Helper()
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) || got.State != want.State {
		t.Errorf("got  %s %s\nwant %s %s", a, got.State, b, want.State)
	}
}

// second is the error of a call that returns something else too.
func second[T any](_ T, err error) error { return err }
