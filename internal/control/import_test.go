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
	"github.com/belfry-sh/belfry/internal/plan"
)

// lines is an import of drafts.
func lines(drafts ...validate.Input) iter.Seq2[control.Line, error] {
	return func(yield func(control.Line, error) bool) {
		for i, d := range drafts {
			if !yield(control.Line{Place: fmt.Sprintf("line %d", i+1), Draft: d}, nil) {
				return
			}
		}
	}
}

func controltest.Named(name, schedule string) validate.Input {
	d := controltest.Input(schedule)
	d.Name = name
	return d
}

func TestAnImportCreatesAllJobsInOrder(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	paused := controltest.Named("c", "@daily")
	paused.Paused = true
	all := lines(controltest.Named("a", "@daily"), controltest.Named("b", "0 9 * * *"), paused)
	ids, err := c.Import(t.Context(), ns, all, key("k", "x"))
	if err != nil || len(ids) != 3 || !slices.IsSortedFunc(ids, belfry.ID.Compare) {
		t.Fatalf("got %v, error %v", ids, err)
	}
	for i, id := range ids {
		job, err := c.Get(t.Context(), ns, id.String())
		if err != nil || job.Name != string(rune('a'+i)) || (job.Status == belfry.StatusPaused) != (i == 2) {
			t.Errorf("job %d is %+v, error %v", i, job, err)
		}
	}
	again, err := c.Import(t.Context(), ns, all, key("k", "x"))
	if err != nil || !slices.Equal(again, ids) {
		t.Errorf("again it is %v, error %v", again, err)
	}
	_, err = c.Import(t.Context(), ns, all, key("k", "y"))
	oneError(t, err, "Idempotency-Key", "another request")
	_, err = c.Import(t.Context(), ns, all, none)
	codeOf(t, err, belfry.Conflict)
	if ids, err := c.Import(t.Context(), ns, lines(), none); err != nil || len(ids) != 0 {
		t.Errorf("of nothing came %v, error %v", ids, err)
	}
	if n := count(t, c); n != 3 {
		t.Errorf("there are %d jobs", n)
	}
}

func TestAnImportTellsTheFaultsOfAllLines(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	bad := controltest.Named("x/y", "0 25 * * *")
	bad.Spec.Type, bad.Payload = "worker", nil
	seq := func(yield func(control.Line, error) bool) {
		_ = yield(control.Line{Place: "[0]", Draft: controltest.Named("fine", "@daily")}, nil) &&
			yield(control.Line{Place: "[1]", Draft: bad}, nil) &&
			yield(control.Line{Place: "[2]", Draft: controltest.Named("fine too", "@daily")}, nil) &&
			yield(control.Line{Place: "[3]", Draft: controltest.Input(""), Faults: []belfry.FieldError{{Field: "schedule", Message: "must be text"}, {Field: "", Message: "is odd"}}}, nil) &&
			yield(control.Line{Place: "[4]", Draft: controltest.Named("..", "@daily")}, nil)
	}
	_, err := c.Import(t.Context(), ns, seq, none)
	got := errorsOf(t, err)
	want := []string{"[1].handler: ", "[1].schedule: ", "[3].schedule: must be text", "[3]: is odd", "[4].name: "}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if n := count(t, c); n != 0 {
		t.Errorf("%d jobs were created all the same", n)
	}
}

func TestAnImportStopsAfterManyFaults(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	read := 0
	endless := func(yield func(control.Line, error) bool) {
		for yield(control.Line{Place: fmt.Sprint("line ", read), Draft: controltest.Input("never")}, nil) {
			read++
		}
	}
	_, err := c.Import(t.Context(), ns, endless, none)
	if n := len(errorsOf(t, err)); n != control.MaxImportFaults || read > control.MaxImportFaults {
		t.Errorf("%d faults of %d lines", n, read)
	}
}

func TestAnImportThatCannotBeReadIsNotTriedAgain(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	errBody, passes := errors.New("unexpected end"), 0
	broken := func(yield func(control.Line, error) bool) {
		passes++
		if yield(control.Line{Draft: controltest.Named("a", "@daily")}, nil) {
			yield(control.Line{}, errBody)
		}
	}
	_, err := c.Import(t.Context(), ns, broken, key("k", "x"))
	if !errors.Is(err, errBody) || passes != 1 {
		t.Errorf("got %v after %d passes", err, passes)
	}
	if n := count(t, c); n != 0 {
		t.Errorf("there are %d jobs", n)
	}
}

func TestAnImportWhoseAnswerIsLostIsReadAnew(t *testing.T) {
	for _, before := range []bool{false, true} {
		inBubble(t, fmt.Sprint("the request is lost: ", before), func(t *testing.T) {
			s := &lossy{Store: controltest.Open(t), losses: 2, before: before}
			c := control.New(s, plan.Defaults{})
			all := lines(controltest.Named("a", "@daily"), controltest.Named("b", "@daily"))
			ids, err := c.Import(t.Context(), ns, all, none)
			if err != nil || len(ids) != 2 || count(t, c) != 2 {
				t.Fatalf("got %v, error %v", ids, err)
			}
			s.losses = 1
			keyed, err := c.Import(t.Context(), "elsewhere", all, key("k", "x"))
			if err != nil || len(keyed) != 2 {
				t.Fatalf("got %v, error %v", keyed, err)
			}
			for _, id := range keyed {
				if _, err := c.Get(t.Context(), "elsewhere", id.String()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Equal schedules are read once, and many different ones take no room.
func TestAnImportOfManyJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control.New(controltest.Open(t), plan.Defaults{})
		const n = 1500
		many := func(yield func(control.Line, error) bool) {
			for i := range n {
				d := controltest.Named(fmt.Sprint("job ", i), fmt.Sprintf("%d %d * * *", i%60, i/60%24))
				d.Type, d.Payload = "worker", json.RawMessage("3")
				if !yield(control.Line{Place: "x", Draft: d}, nil) {
					return
				}
			}
		}
		ids, err := c.Import(t.Context(), ns, many, none)
		if err != nil || len(ids) != n || !slices.IsSortedFunc(ids, belfry.ID.Compare) || len(slices.Compact(ids)) != n {
			t.Fatalf("got %d ids, error %v", len(ids), err)
		}
		job, err := c.Get(t.Context(), ns, ids[61].String())
		if err != nil || job.Handler != "job 61" || job.NextRunAt.Format("15:04") != "01:01" {
			t.Errorf("got %+v, error %v", job, err)
		}
	})
}
