package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/validate"
)

// ruleChange is a rule of a job and since when it applied.
type ruleChange struct {
	revision int
	policy   *plan.Policy
	from     time.Time
}

// jobHistory is which rules a job had, recorded outside the store.
type jobHistory struct {
	job   belfry.ID
	rules []ruleChange
}

// schedulesOfAYear are rules around the hours at which the clocks of their zones
// change.
var schedulesOfAYear = []string{
	"30 2 * * *", "0 */6 * * *", "15,45 1-3 * * SUN", "0 0 1,15 * *", "20 9 * * MON-FRI", "30 1 * * *",
}

func anyRule(r *rand.Rand, s *belfry.Spec) {
	s.Schedule = schedulesOfAYear[r.IntN(len(schedulesOfAYear))]
	s.Timezone = []string{"UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe"}[r.IntN(4)]
}

// anyPolicies draws what becomes of occurrences that are missed or overlap.
func anyPolicies(r *rand.Rand, s *belfry.Spec, i int) {
	anyRule(r, s)
	s.MissedWindow = []belfry.MissedWindow{belfry.MissedSkip, belfry.MissedRunOnce, belfry.MissedRunAll}[i%3]
	s.MaxMissed = []int{0, 1, 5}[r.IntN(3)]
	s.CatchUpSeconds = []int{0, 3600, 10 * 24 * 3600}[r.IntN(3)]
	s.Overlap = []belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue, belfry.OverlapParallel}[r.IntN(3)]
	s.MaxQueued = []int{0, 1, 3}[r.IntN(3)]
	s.DSTGap = []belfry.DSTGap{"", belfry.GapRun, belfry.GapSkip}[r.IntN(3)]
}

// Over a year with pauses, edits, outages and clock changes, the runs and skips of a
// job are its occurrences: none is missing and none is there twice.
func TestRunsAndSkipsPartitionAYearOfOccurrences(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.retention = 500 * 24 * time.Hour
				b.simulateYear(rand.New(rand.NewPCG(seed, 5)))
			})
		})
	}
}

func (b *bubble) simulateYear(r *rand.Rand) {
	b.handlerTime = 30 * time.Second
	b.handlerResult = func(run *belfry.Run) error { // some are alive for long
		if run.Attempt == 1 && run.ID[15]%3 == 0 {
			return belfry.RetryAfter(errRefused, 7*time.Hour)
		}
		return nil
	}
	c := control.New(b.store, plan.Defaults{})
	var histories []*jobHistory
	var jobs []belfry.ID
	for i := range 6 {
		id := b.create("0 0 1 1 *", func(s *belfry.Spec) { anyPolicies(r, s, i) })
		jobs, histories = append(jobs, id), append(histories, &jobHistory{job: id})
		b.addRule(histories[len(histories)-1], b.store.Now())
	}
	end := time.Now().AddDate(1, 0, 0)
	paused := map[belfry.ID]bool{}
	for time.Now().Before(end) {
		switch l := histories[r.IntN(len(histories))]; r.IntN(6) {
		case 0, 1: // up, for some days
			b.runUntil(time.Now().Add(time.Duration(1+r.IntN(72))*time.Hour), jobs)
		case 2: // down, from a minute to weeks
			b.sleep([]time.Duration{time.Minute, time.Hour, 9 * time.Hour, 3 * 24 * time.Hour, 12 * 24 * time.Hour}[r.IntN(5)])
			b.runUntil(time.Now().Add(time.Hour), jobs)
		case 3:
			b.pauseOrResume(c, l.job, paused, r.IntN(2) == 0)
		case 4:
			b.reschedule(c, r, l)
		case 5: // the node dies in the middle of something
			b.start(b.store)
			b.sleep(time.Duration(r.IntN(40)) * time.Second)
			b.crash()
			c = control.New(b.store, plan.Defaults{})
		}
	}
	for _, l := range histories {
		if paused[l.job] {
			b.pauseOrResume(c, l.job, paused, false)
		}
	}
	b.runUntil(time.Now().Add(48*time.Hour), jobs)
	for _, l := range histories {
		b.wantPartition(l, time.Now())
	}
}

// runUntil runs a node around the instants at which something is due until then,
// and lets the runs that it makes end.
func (b *bubble) runUntil(until time.Time, jobs []belfry.ID) {
	b.runAroundDue(until, jobs...)
	if left := time.Until(until); left > 0 {
		b.sleep(left)
	}
	b.start(b.store)
	b.sleep(3 * time.Minute) // some serial runs are left for the next time
	b.stop()
}

func (b *bubble) pauseOrResume(c *control.Control, job belfry.ID, paused map[belfry.ID]bool, catchUp bool) {
	b.Helper()
	var err error
	if paused[job] {
		_, err = c.Resume(b.Context(), "default", job.String(), belfry.Resume{CatchUp: catchUp})
	} else {
		_, err = c.Pause(b.Context(), "default", job.String())
	}
	if err != nil {
		b.Fatal(err)
	}
	paused[job] = !paused[job]
}

// reschedule gives a job another rule.
func (b *bubble) reschedule(c *control.Control, r *rand.Rand, l *jobHistory) {
	b.Helper()
	_, err := c.Edit(b.Context(), "default", l.job.String(), "", func(current belfry.Manifest) validate.Input {
		anyRule(r, &current.Spec)
		current.Payload = []byte(`{"url": "https://example.com/hook"}`) // an edit validates it
		return validate.Input{Manifest: current}
	})
	if err != nil {
		b.Fatal(err)
	}
	b.addRule(l, b.store.Now())
}

// addRule records the rule of the job if it has a new revision.
func (b *bubble) addRule(l *jobHistory, now time.Time) {
	b.Helper()
	job, err := b.store.Job(b.Context(), "default", l.job)
	if err != nil {
		b.Fatal(err)
	}
	if n := len(l.rules); n > 0 && l.rules[n-1].revision == job.Revision {
		return
	}
	policy, err := plan.Compile(job.Spec)
	if err != nil {
		b.Fatal(err)
	}
	l.rules = append(l.rules, ruleChange{job.Revision, policy, now})
}

// occurrences are those of the rules, each while it applied.
func (l *jobHistory) occurrences(until time.Time) (all []time.Time) {
	for i, c := range l.rules {
		to := until
		if i+1 < len(l.rules) {
			to = l.rules[i+1].from
		}
		for at := c.policy.Rule.Next(c.from); !at.IsZero() && !at.After(to); at = c.policy.Rule.Next(at) {
			all = append(all, at)
		}
	}
	return all
}

// wantPartition expects every occurrence once among the runs and skips of a job.
func (b *bubble) wantPartition(l *jobHistory, until time.Time) {
	b.Helper()
	rules := map[int]*plan.Policy{}
	for _, c := range l.rules {
		rules[c.revision] = c.policy
	}
	var got []time.Time
	reasons := map[belfry.Reason]int64{}
	for _, run := range b.runs(l.job) {
		reasons[run.Reason] += max(run.SkippedCount, 1)
		switch {
		case run.Kind != belfry.KindScheduled || run.Reason == belfry.ReasonDSTGap:
		case run.Status != belfry.RunSkipped || run.SkippedCount == 1:
			got = append(got, run.ScheduledAt)
		default:
			at, left := run.ScheduledAt, run.SkippedCount
			for ; left > 0; left-- {
				got = append(got, at)
				at = rules[run.Revision].Rule.Next(at)
			}
			if last := got[len(got)-1]; !last.Equal(*run.SkippedTo) {
				b.Errorf("%d skips from %v to %v end at %v", run.SkippedCount, run.ScheduledAt, *run.SkippedTo, last)
			}
		}
	}
	slices.SortFunc(got, time.Time.Compare)
	want := l.occurrences(until)
	if !slices.EqualFunc(got, want, time.Time.Equal) {
		b.Errorf("%+v: %d of %d occurrences%s", l.rules[0].policy.Spec, len(got), len(want), firstDifference(got, want))
	}
	b.Logf("%d rules, %d occurrences: %v", len(l.rules), len(want), reasons)
}
