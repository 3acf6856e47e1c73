package scheduler

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// The loop has no time to parse schedules: what it gets is compiled, whether it can be
// read or not, and an error is logged once.
func TestLoaderCompilesPlansBeforeTheLoopGetsThem(t *testing.T) {
	s := New(nil, Options{})
	var dues []store.Due
	for i := range 3*compilePage - 1 {
		spec := belfry.DefaultSpec()
		spec.Schedule = fmt.Sprintf("%d %d * * *", i%60, i/60)
		if i == 7 {
			spec.Schedule = "no rule at all"
		}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		dues = append(dues, store.Due{Plan: plan.Plan{JobID: belfry.NewID(time.Now())}, Spec: string(text)})
	}
	go (&loader{Scheduler: s}).sendPlans(t.Context(), dues)
	for n := 0; n < len(dues); {
		for _, d := range <-s.loads {
			s.subjects.mu.Lock()
			c := s.subjects.compiled[subjectKey{spec: d.Spec}]
			s.subjects.mu.Unlock()
			if c == nil || (c.subject == nil) != (n == 7) {
				t.Errorf("plan %d is compiled to %+v", n, c)
			}
			if _, first, err := s.subjects.get(d); first != (n == 7) || (err != nil) != (n == 7) {
				t.Errorf("plan %d: first %v, %v", n, first, err)
			}
			if _, first, _ := s.subjects.get(d); first {
				t.Errorf("plan %d: its error is reported again", n)
			}
			n++
		}
	}
}
