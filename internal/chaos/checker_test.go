package chaos

import (
	"fmt"
	"slices"
	"time"
)

// verdict names a promise that was broken.
type verdict string

const (
	lostJob      verdict = "an acknowledged job is not there"
	strangeJob   verdict = "a job exists that was not requested"
	lostTrigger  verdict = "an acknowledged trigger has no run"
	strangeRun   verdict = "a run exists that was not requested"
	undecided    verdict = "an occurrence has no decision"
	decidedTwice verdict = "an occurrence has two decisions"
	miscounted   verdict = "a skip does not count what it covers"
	falseExcuse  verdict = "the reason of a skip is not true"
	sharedKey    verdict = "two runs share an idempotency key"
	phantom      verdict = "a run succeeded without an answer that says so"
	ghost        verdict = "a delivery does not fit any attempt that is known"
	early        verdict = "a delivery came before its time"
	repeated     verdict = "an attempt was delivered twice"
	superfluous  verdict = "without a fault there are more or fewer deliveries than attempts"
	unsettled    verdict = "a run is not settled"
	diedEarly    verdict = "a run died with attempts left, or was retried without any"
	unrecorded   verdict = "an attempt is not recorded"
	overlapping  verdict = "an attempt began while another was valid"
	crowded      verdict = "two runs of a job that may have one had valid attempts at a time"
)

// finding is a verdict on something.
type finding struct {
	verdict
	about string
}

func (f finding) String() string { return string(f.verdict) + ": " + f.about }

// pending reports whether waiting may help.
func (f finding) pending() bool {
	return f.verdict == undecided || f.verdict == lostTrigger || f.verdict == unsettled
}

// checker has a history by its keys.
type checker struct {
	history
	findings  []finding
	requested map[string]*requestedJob // by id
	runs      map[string]*apiRun       // by id
	ofJob     map[string][]*apiRun     // by job
	ofRun     map[string][]*delivery   // by run
}

// check gives everything that is wrong with a history.
func check(h history) []finding {
	c := &checker{
		history:   h,
		requested: map[string]*requestedJob{},
		runs:      map[string]*apiRun{},
		ofJob:     map[string][]*apiRun{},
		ofRun:     map[string][]*delivery{},
	}
	c.checkJobs()
	c.indexRuns()
	for id, j := range c.requested {
		c.checkOccurrences(id, j)
		if j.OneAtATime {
			c.checkOneAtATime(id, j)
		}
	}
	c.checkTriggers()
	c.checkKeys()
	for i := range c.Deliveries {
		c.checkDelivery(&c.Deliveries[i])
	}
	for _, r := range c.runs {
		if !r.skipped() {
			c.checkRun(r)
		}
	}
	return c.findings
}

func (c *checker) find(v verdict, format string, args ...any) {
	c.findings = append(c.findings, finding{v, fmt.Sprintf(format, args...)})
}

// checkJobs compares the requested jobs with those that exist. A job whose creation
// had an unknown outcome may be there, and then everything holds for it.
func (c *checker) checkJobs() {
	names := map[string]*requestedJob{}
	for i := range c.Requested {
		names[c.Requested[i].Name] = &c.Requested[i]
	}
	for _, job := range c.Jobs {
		j := names[job.Name]
		if j == nil || j.ID != "" && j.ID != job.ID || c.requested[job.ID] != nil {
			c.find(strangeJob, "%s %q", job.ID, job.Name)
			continue
		}
		c.requested[job.ID] = j
		delete(names, job.Name)
	}
	for _, j := range names {
		if j.ID != "" {
			c.find(lostJob, "%s %q", j.ID, j.Name)
		}
	}
}

func (c *checker) indexRuns() {
	for i := range c.Runs {
		r := &c.Runs[i]
		if c.runs[r.ID] != nil {
			c.find(decidedTwice, "%s is there twice", r.ID)
			continue
		}
		c.runs[r.ID] = r
		c.ofJob[r.Job] = append(c.ofJob[r.Job], r)
		if c.requested[r.Job] == nil {
			c.find(strangeRun, "%s of job %s", r.ID, r.Job)
		}
	}
	for i := range c.Deliveries {
		d := &c.Deliveries[i]
		c.ofRun[d.Run] = append(c.ofRun[d.Run], d)
	}
}

// checkOccurrences wants one decision for each: a run, or a skip that covers it.
func (c *checker) checkOccurrences(id string, j *requestedJob) {
	first, must, may := j.At, j.At, j.At
	if j.Every > 0 {
		first, must, may = j.From, j.Until.Add(-1), j.End.Add(-1)
	}
	decisions := map[int64]int{}
	possible := j.occurrences(first, may)
	for _, at := range possible {
		decisions[at.UnixMicro()] = 0
	}
	for _, r := range c.ofJob[id] {
		if r.Kind != "scheduled" {
			continue
		}
		covered := []time.Time{r.ScheduledAt}
		if r.skipped() {
			c.checkExcuse(j, r)
			if r.SkippedTo != nil {
				covered = j.occurrences(r.ScheduledAt, *r.SkippedTo)
			}
			if int64(len(covered)) != r.SkippedCount {
				c.find(miscounted, "%s says %d, covers %d", r.ID, r.SkippedCount, len(covered))
			}
		}
		for _, at := range covered {
			if _, ok := decisions[at.UnixMicro()]; !ok {
				c.find(strangeRun, "%s of %q for %s, which is not an occurrence", r.ID, j.Name, at)
			}
			decisions[at.UnixMicro()]++
		}
	}
	for _, at := range possible {
		switch n := decisions[at.UnixMicro()]; {
		case n > 1:
			c.find(decidedTwice, "%q has %d for %s", j.Name, n, at)
		case n == 0 && !at.After(must):
			c.find(undecided, "%q has none for %s", j.Name, at)
		}
	}
}

// checkOneAtATime wants the attempts of all runs of a job to be valid one after
// another, as the database has it.
func (c *checker) checkOneAtATime(id string, j *requestedJob) {
	type span struct {
		run      string
		from, to time.Time
	}
	var spans []span
	for _, r := range c.ofJob[id] {
		for _, a := range r.Attempts {
			spans = append(spans, span{r.ID, a.StartedAt, a.FinishedAt})
		}
		if r.Status == "succeeded" && r.StartedAt != nil && r.FinishedAt != nil {
			spans = append(spans, span{r.ID, *r.StartedAt, *r.FinishedAt})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for i := 1; i < len(spans); i++ {
		if before, s := spans[i-1], spans[i]; before.run != s.run && s.from.Before(before.to) {
			c.find(crowded, "%s and %s of %q, by %v", before.run, s.run, j.Name, before.to.Sub(s.from))
		}
	}
}

// overlapSlack is how far apart two clock readings of one instant may be that
// concurrent statements took.
const overlapSlack = 2 * time.Second

// checkExcuse wants the reason of a skip to be true: no scheduler was running only
// where there were faults, and another run was alive only where there is one.
func (c *checker) checkExcuse(j *requestedJob, skip *apiRun) {
	switch skip.Reason {
	case "missed_window":
		if !c.Faults {
			c.find(falseExcuse, "%s of %q says %s without a fault", skip.ID, j.Name, skip.Reason)
		}
	case "max_missed":
		if !c.Faults || !j.CatchesUp {
			c.find(falseExcuse, "%s of %q says %s", skip.ID, j.Name, skip.Reason)
		}
	case "overlap", "queue_full":
		alive := slices.ContainsFunc(c.ofJob[skip.Job], func(r *apiRun) bool {
			return !r.skipped() && r.FiredAt.Before(skip.FiredAt.Add(overlapSlack)) &&
				(r.FinishedAt == nil || r.FinishedAt.After(skip.FiredAt.Add(-overlapSlack)))
		})
		if !j.OneAtATime || !alive || j.Queues != (skip.Reason == "queue_full") {
			c.find(falseExcuse, "%s of %q says %s, and no other run was alive", skip.ID, j.Name, skip.Reason)
		}
	default:
		c.find(falseExcuse, "%s of %q says %q", skip.ID, j.Name, skip.Reason)
	}
}

// checkTriggers wants the run of every trigger that was acknowledged, and no more
// manual runs of a job than were requested.
func (c *checker) checkTriggers() {
	wanted := map[string]bool{}
	unknown := map[string]int{}
	for _, t := range c.Triggers {
		if t.Run == "" {
			unknown[t.Job]++
			continue
		}
		wanted[t.Run] = true
		if r := c.runs[t.Run]; r == nil || r.Kind != "manual" || r.Job != t.Job {
			c.find(lostTrigger, "%s of job %s", t.Run, t.Job)
		}
	}
	for _, r := range c.runs {
		if r.Kind == "scheduled" || wanted[r.ID] {
			continue
		}
		if unknown[r.Job]--; unknown[r.Job] < 0 {
			c.find(strangeRun, "%s run %s of job %s", r.Kind, r.ID, r.Job)
		}
	}
}

func (c *checker) checkKeys() {
	owner := map[string]string{}
	for _, r := range c.runs {
		if other, taken := owner[r.Key]; taken {
			c.find(sharedKey, "%s and %s have %s", r.ID, other, r.Key)
		}
		owner[r.Key] = r.ID
	}
}

// checkDelivery wants a delivery to belong to an attempt, and to be in time.
func (c *checker) checkDelivery(d *delivery) {
	if d.Arrived.Before(d.ScheduledAt) {
		c.find(early, "%s by %v", d.Run, d.ScheduledAt.Sub(d.Arrived))
	}
	r := c.runs[d.Run]
	if r == nil || r.skipped() || r.Job != d.Job || r.Key != d.Key || !r.ScheduledAt.Equal(d.ScheduledAt) ||
		d.Attempt < 1 || d.Attempt > r.Attempt {
		c.find(ghost, "attempt %d of run %s of job %s for %s with key %s", d.Attempt, d.Run, d.Job, d.ScheduledAt, d.Key)
	}
}

// checkRun wants a run to be settled, and for reasons that the receiver and its own
// attempts show.
func (c *checker) checkRun(r *apiRun) {
	byAttempt := map[int]int{}
	good := 0
	for _, d := range c.ofRun[r.ID] {
		if byAttempt[d.Attempt]++; byAttempt[d.Attempt] == 2 {
			c.find(repeated, "attempt %d of %s", d.Attempt, r.ID)
		}
		if d.Answered/100 == 2 {
			good++
		}
	}
	if !r.settled() {
		c.find(unsettled, "%s is %s", r.ID, r.Status)
		return
	}
	if !c.Faults && (len(c.ofRun[r.ID]) != r.Attempt || good > 1) {
		c.find(superfluous, "%s has %d attempts, %d deliveries, %d of them answered well", r.ID, r.Attempt, len(c.ofRun[r.ID]), good)
	}
	byWorker := c.requested[r.Job] != nil && c.requested[r.Job].ByWorker
	done := slices.ContainsFunc(c.ofRun[r.ID], func(d *delivery) bool {
		return d.Attempt == r.Attempt && d.Answered/100 == 2 && (!byWorker || d.Ended == "succeeded")
	})
	if r.Status == "succeeded" && !done {
		c.find(phantom, "attempt %d of %s", r.Attempt, r.ID)
	}
	c.checkAttempts(r)
}

// checkAttempts wants every attempt but a successful one recorded, and the end of
// the run to follow from them.
func (c *checker) checkAttempts(r *apiRun) {
	recorded := r.Attempt
	if r.Status == "succeeded" {
		recorded--
	}
	failures, lost := 0, 0
	for i, a := range r.Attempts {
		switch a.Outcome {
		case "failed", "timed_out":
			failures++
			lost = 0
		case "lost":
			lost++
		}
		if next := r.began(i + 2); !next.IsZero() && next.Before(a.FinishedAt) {
			c.find(overlapping, "attempt %d of %s at %s, the one before ended at %s", i+2, r.ID, next, a.FinishedAt)
		}
		if a.Number != i+1 {
			c.find(unrecorded, "%s has attempt %d in place %d", r.ID, a.Number, i+1)
		}
	}
	if len(r.Attempts) != recorded {
		c.find(unrecorded, "%s has %d of %d", r.ID, len(r.Attempts), recorded)
		return
	}
	limit, given := 0, r.Status == "dead" || r.Status == "discarded"
	if j := c.requested[r.Job]; j != nil {
		limit = j.Retries
		if j.Redriven && failures > limit {
			limit += j.Retries + 1
		}
	}
	switch {
	case given && r.Reason == "out_of_retries":
		if failures != limit+1 {
			c.find(diedEarly, "%s is dead after %d failures, %d retries are allowed", r.ID, failures, limit)
		}
	case given && r.Reason == "poison":
		if lost < 3 {
			c.find(diedEarly, "%s is poison after %d lost workers", r.ID, lost)
		}
	case given || r.Status == "cancelled" || failures > limit || lost >= 3:
		c.find(diedEarly, "%s is %s (%s) after %d failures and %d lost workers", r.ID, r.Status, r.Reason, failures, lost)
	}
}
