package scheduler

import (
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestStepBuffersAreReused(t *testing.T) {
	l := &loop{}
	first := append(l.stepBuffer(3), plan.Step{Epoch: 1}, plan.Step{Epoch: 2, Runs: make([]plan.Run, 1)})
	second := l.stepBuffer(2)
	if cap(second) != 2 {
		t.Fatalf("a buffer for 2 steps has room for %d while the first is in use", cap(second))
	}
	l.reuseSteps(first)
	if again := l.stepBuffer(4); cap(again) != 4 {
		t.Errorf("a buffer for 4 steps has room for %d", cap(again))
	}
	again := l.stepBuffer(1)
	if len(again) != 0 || cap(again) != 3 {
		t.Fatalf("a buffer for 1 step has %d steps and room for %d, wants the first one, empty", len(again), cap(again))
	}
	for i, step := range again[:2] {
		if step.Epoch != 0 || step.Runs != nil || step.Seen.JobID != (belfry.ID{}) {
			t.Errorf("step %d is still in memory: %+v", i, step)
		}
	}
	for range 2 * maxFiring {
		l.reuseSteps(make([]plan.Step, 1))
	}
	if len(l.spareSteps) != maxFiring {
		t.Errorf("%d buffers are kept, wants %d", len(l.spareSteps), maxFiring)
	}
}
