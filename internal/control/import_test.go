package control_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/validate"
)

// lines are the lines of an import.
func lines(inputs ...validate.Input) iter.Seq2[control.Line, error] {
	return func(yield func(control.Line, error) bool) {
		for i, d := range inputs {
			if !yield(control.Line{Place: fmt.Sprintf("line %d", i+1), Input: d}, nil) {
				return
			}
		}
	}
}

func TestImportCreatesAllJobsInOrder(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	paused := controltest.Named("c", "@daily")
	paused.Status = belfry.StatusPaused
	all := lines(controltest.Named("a", "@daily"), controltest.Named("b", "0 9 * * *"), paused)
	result, err := c.Import(t.Context(), ns, all, key("k", "x"), false)
	ids := result.JobIDs
	if err != nil || len(ids) != 3 || !slices.IsSortedFunc(ids, belfry.ID.Compare) {
		t.Fatalf("got %v, error %v", ids, err)
	}
	for i, id := range ids {
		job, err := c.Get(t.Context(), ns, id.String())
		if err != nil || job.Name != string(rune('a'+i)) || (job.Status == belfry.StatusPaused) != (i == 2) {
			t.Errorf("job %d is %+v, error %v", i, job, err)
		}
	}
	again, err := c.Import(t.Context(), ns, all, key("k", "x"), false)
	if err != nil || !slices.Equal(again.JobIDs, ids) || again.Created != 3 {
		t.Errorf("again it is %v, error %v", again, err)
	}
	_, err = c.Import(t.Context(), ns, all, key("k", "y"), false)
	oneError(t, err, "Idempotency-Key", "another request")
	_, err = c.Import(t.Context(), ns, all, none, false)
	codeOf(t, err, belfry.Conflict)
	if result, err := c.Import(t.Context(), ns, lines(), none, false); err != nil || result.Created != 0 || result.JobIDs == nil {
		t.Errorf("of nothing came %v, error %v", result, err)
	}
	if n := count(t, c); n != 3 {
		t.Errorf("there are %d jobs", n)
	}
}

func TestImportReportsTheErrorsOfAllLines(t *testing.T) {
	c := newControl(t)
	bad := controltest.Named("x/y", "0 25 * * *")
	bad.Spec.Type, bad.Payload = "worker", nil
	undecoded := controltest.Input("")
	undecoded.Errors = []belfry.FieldError{{Field: "schedule", Message: "must be a string"}, {Field: "", Message: "is odd"}}
	seq := func(yield func(control.Line, error) bool) {
		_ = yield(control.Line{Place: "[0]", Input: controltest.Named("fine", "@daily")}, nil) &&
			yield(control.Line{Place: "[1]", Input: bad}, nil) &&
			yield(control.Line{Place: "[2]", Input: controltest.Named("fine too", "@daily")}, nil) &&
			yield(control.Line{Place: "[3]", Input: undecoded}, nil) &&
			yield(control.Line{Place: "[4]", Input: controltest.Named("..", "@daily")}, nil)
	}
	_, err := c.Import(t.Context(), ns, seq, none, false)
	got := errorsOf(t, err)
	want := []string{"[1].handler: ", "[1].schedule: ", "[3].schedule: must be a string", "[3]: is odd", "[4].name: "}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if n := count(t, c); n != 0 {
		t.Errorf("%d jobs were created all the same", n)
	}
}

func TestImportStopsAfterManyErrors(t *testing.T) {
	c := newControl(t)
	read := 0
	endless := func(yield func(control.Line, error) bool) {
		for yield(control.Line{Place: fmt.Sprint("line ", read), Input: controltest.Input("never")}, nil) {
			read++
		}
	}
	_, err := c.Import(t.Context(), ns, endless, none, false)
	if n := len(errorsOf(t, err)); n != control.MaxImportErrors || read > control.MaxImportErrors+20 { // lines are validated some at a time
		t.Errorf("%d errors of %d lines", n, read)
	}
}

func TestImportThatCannotBeReadIsNotRepeated(t *testing.T) {
	c := newControl(t)
	errBody, passes := errors.New("unexpected end"), 0
	broken := func(yield func(control.Line, error) bool) {
		passes++
		if yield(control.Line{Input: controltest.Named("a", "@daily")}, nil) {
			yield(control.Line{}, errBody)
		}
	}
	_, err := c.Import(t.Context(), ns, broken, key("k", "x"), false)
	if !errors.Is(err, errBody) || passes != 1 {
		t.Errorf("got %v after %d passes", err, passes)
	}
	if n := count(t, c); n != 0 {
		t.Errorf("there are %d jobs", n)
	}
}

func TestImportWhoseAnswerIsLostIsReadAgain(t *testing.T) {
	for _, before := range []bool{false, true} {
		inBubble(t, fmt.Sprint("the request is lost: ", before), func(t *testing.T) {
			s := &lossy{Store: controltest.Open(t), losses: 2, before: before}
			c := control.New(s, plan.Defaults{})
			all := lines(controltest.Named("a", "@daily"), controltest.Named("b", "@daily"))
			ids, err := c.Import(t.Context(), ns, all, none, false)
			if err != nil || ids.Created != 2 || count(t, c) != 2 {
				t.Fatalf("got %v, error %v", ids, err)
			}
			s.losses = 1
			keyed, err := c.Import(t.Context(), "elsewhere", all, key("k", "x"), false)
			if err != nil || keyed.Created != 2 {
				t.Fatalf("got %v, error %v", keyed, err)
			}
			for _, id := range keyed.JobIDs {
				if _, err := c.Get(t.Context(), "elsewhere", id.String()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Equal schedules are parsed once, and many different ones take no memory.
func TestImportOfManyJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(t)
		const n = 1500
		many := func(yield func(control.Line, error) bool) {
			for i := range n {
				d := controltest.Named(fmt.Sprint("job ", i), fmt.Sprintf("%d %d * * *", i%60, i/60%24))
				d.Type, d.Payload = "worker", json.RawMessage("3")
				if !yield(control.Line{Place: "x", Input: d}, nil) {
					return
				}
			}
		}
		result, err := c.Import(t.Context(), ns, many, none, false)
		ids := result.JobIDs
		if err != nil || len(ids) != n || !slices.IsSortedFunc(ids, belfry.ID.Compare) || len(slices.Compact(ids)) != n {
			t.Fatalf("got %d ids, error %v", len(ids), err)
		}
		job, err := c.Get(t.Context(), ns, ids[61].String())
		if err != nil || job.Handler != "job 61" || job.NextRunAt.Format("15:04") != "01:01" {
			t.Errorf("got %+v, error %v", job, err)
		}
	})
}

func TestImportDryRun(t *testing.T) {
	c := newControl(t)
	controltest.Create(t, c, controltest.Named("taken", "@daily"))
	result, err := c.Import(t.Context(), ns, lines(controltest.Named("a", "@daily"), controltest.Input("@daily")), key("k", "x"), true)
	if err != nil || result.Created != 2 || result.JobIDs == nil || len(result.JobIDs) != 0 {
		t.Errorf("got %+v, error %v", result, err)
	}
	for name, second := range map[string]string{"a name that is taken": "taken", "a name twice": "a"} {
		_, err = c.Import(t.Context(), ns, lines(controltest.Named("a", "@daily"), controltest.Named(second, "@daily")), none, true)
		if codeOf(t, err, belfry.Conflict); !strings.Contains(err.Error(), second) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = c.Import(t.Context(), ns, lines(controltest.Named("taken", "@daily"), controltest.Input("never")), none, true)
	oneError(t, err, "line 2.schedule", "")
	if n := count(t, c); n != 1 {
		t.Errorf("there are %d jobs", n)
	}
	if _, err = c.Import(t.Context(), ns, lines(controltest.Named("a", "@daily")), key("k", "x"), false); err != nil || count(t, c) != 2 {
		t.Errorf("after the dry run: %v", err)
	}
}
