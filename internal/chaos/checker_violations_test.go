package chaos

import (
	"fmt"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func second(n float64) time.Time { return noon.Add(time.Duration(n * float64(time.Second))) }

func pointer[T any](v T) *T { return &v }

// validHistory has one of everything that may happen with faults: a one-off whose first
// worker was lost, a trigger, a job of unknown outcome that exists and one that does
// not, a recurring job with a run, a run that made the next occurrence be skipped, and
// a gap, and a dead letter.
func validHistory() history {
	h := history{
		Faults: true,
		Requested: []requestedJob{
			{ID: "once", Name: "once", At: second(1)},
			{ID: "", Name: "perhaps", At: second(1.5), ByWorker: true},
			{ID: "", Name: "perhaps not", At: second(1.5)},
			{ID: "every", Name: "every", Every: 2 * time.Second, From: second(2), Until: second(13), End: second(15), OneAtATime: true},
			{ID: "bad", Name: "bad", At: second(3), Retries: 1},
		},
		Triggers: []requestedTrigger{{Job: "once", Run: "manual"}, {Job: "every"}},
		Jobs: []apiJob{
			{ID: "once", Name: "once"}, {ID: "maybe", Name: "perhaps"}, {ID: "every", Name: "every"}, {ID: "bad", Name: "bad"},
		},
	}
	h.ran("once", "scheduled", second(1), 2, apiAttempt{Outcome: "lost"})
	h.ran("once", "manual", second(2.25), 1)
	h.Runs[1].ID, h.Runs[1].Key, h.Deliveries[1].Run, h.Deliveries[1].Key = "manual", "once:2:manual", "manual", "once:2:manual"
	h.ran("maybe", "scheduled", second(1.5), 1)
	h.Deliveries[2].Ended = "succeeded"
	h.ran("every", "scheduled", second(2), 1)
	h.skipped("every", second(4), second(4), 1, "overlap")
	h.skipped("every", second(6), second(10), 3, "missed_window")
	h.ran("every", "scheduled", second(12), 1)
	h.ran("bad", "scheduled", second(3), 2, apiAttempt{Outcome: "failed"}, apiAttempt{Outcome: "timed_out"})
	dead := &h.Runs[len(h.Runs)-1]
	dead.Status, dead.Reason = "dead", "out_of_retries"
	h.Deliveries[len(h.Deliveries)-1].Answered = 0
	h.Runs[3].FinishedAt = pointer(second(4.5)) // it was alive at the skip
	h.Runs[0].StartedAt, h.Runs[0].Attempts[0].FinishedAt = pointer(second(1.25)), second(1.25)
	dead.Attempts[0].FinishedAt, dead.Attempts[1].StartedAt = second(3.2), second(3.3)
	return h
}

// ran adds a run that succeeded at its last attempt, and that attempt's delivery.
func (h *history) ran(job, kind string, at time.Time, attempt int, before ...apiAttempt) {
	id := fmt.Sprintf("%s@%s", job, at.Format("05.00"))
	key := fmt.Sprintf("%s:%d", job, at.UnixMilli())
	for i := range before {
		before[i].Number = i + 1
	}
	h.Runs = append(h.Runs, apiRun{ID: id, Job: job, Kind: kind, Key: key, ScheduledAt: at, FiredAt: at, Status: "succeeded",
		Attempt: attempt, Attempts: before, FinishedAt: pointer(at.Add(time.Second / 2))})
	h.Deliveries = append(h.Deliveries, delivery{Run: id, Job: job, Key: key, Attempt: attempt, ScheduledAt: at,
		Arrived: at.Add(time.Millisecond), Answered: 200})
}

func (h *history) skipped(job string, from, to time.Time, count int64, reason string) {
	h.Runs = append(h.Runs, apiRun{ID: fmt.Sprintf("%s@%s", job, from.Format("05.00")), Job: job, Kind: "scheduled", Status: "skipped",
		Key: fmt.Sprintf("%s:%d", job, from.UnixMilli()), ScheduledAt: from, FiredAt: from, SkippedTo: &to, SkippedCount: count, Reason: reason})
}

func TestCheckerAcceptsAValidHistory(t *testing.T) {
	for _, f := range check(validHistory()) {
		t.Error(f)
	}
}

func TestCheckerFindsViolations(t *testing.T) {
	for _, c := range []struct {
		want verdict
		what string
		harm func(h *history)
	}{
		{lostJob, "a job that was acknowledged is gone", func(h *history) {
			h.Requested = append(h.Requested, requestedJob{ID: "gone", Name: "gone", At: second(1)})
		}},
		{lostJob, "it is there under another id", func(h *history) { h.Requested[0].ID = "other" }},
		{strangeJob, "a job is there twice", func(h *history) { h.Jobs = append(h.Jobs, h.Jobs[0]) }},
		{strangeJob, "a job has a name that was not requested", func(h *history) { h.Jobs = append(h.Jobs, apiJob{ID: "x", Name: "x"}) }},
		{lostTrigger, "a trigger was acknowledged and forgotten", func(h *history) { h.Triggers = append(h.Triggers, requestedTrigger{Job: "once", Run: "never"}) }},
		{lostTrigger, "a trigger became the run of another job", func(h *history) { h.Triggers[0].Job = "bad" }},
		{strangeRun, "a trigger of another job took its place", func(h *history) { h.Triggers[0].Run = ""; h.Triggers[0].Job = "bad" }},
		{strangeRun, "one trigger became two runs", func(h *history) {
			h.ran("once", "manual", second(2.5), 1)
		}},
		{strangeRun, "a one-off ran at another instant", func(h *history) { h.ran("once", "scheduled", second(1.25), 1) }},
		{strangeRun, "an occurrence after the pause ran", func(h *history) { h.ran("every", "scheduled", second(16), 1) }},
		{strangeRun, "a run belongs to no job", func(h *history) { h.ran("nobody", "scheduled", second(1), 1) }},
		{undecided, "the run of a one-off is not there", func(h *history) { h.Runs, h.Deliveries = h.Runs[1:], h.Deliveries[1:] }},
		{undecided, "a job of unknown outcome is there and never ran", func(h *history) { h.removeRun(2) }},
		{undecided, "a gap has no skip", func(h *history) { h.removeRun(5) }},
		{undecided, "a skip is shorter than its gap", func(h *history) { h.Runs[5].SkippedTo, h.Runs[5].SkippedCount = pointer(second(8)), 2 }},
		{decidedTwice, "an occurrence has two runs", func(h *history) { h.repeatRun(6) }},
		{decidedTwice, "a skip covers an occurrence that ran", func(h *history) { h.Runs[5].SkippedTo, h.Runs[5].SkippedCount = pointer(second(12)), 4 }},
		{decidedTwice, "a list has a run twice", func(h *history) { h.Runs = append(h.Runs, h.Runs[0]) }},
		{miscounted, "a skip counts too many", func(h *history) { h.Runs[5].SkippedCount = 4 }},
		{falseExcuse, "nothing overlapped", func(h *history) { h.Runs[3].FinishedAt = pointer(second(2.1)); h.Runs[4].FiredAt = second(9) }},
		{falseExcuse, "overlaps are allowed", func(h *history) { h.Requested[3].OneAtATime = false }},
		{falseExcuse, "there is no reason", func(h *history) { h.Runs[5].Reason = "" }},
		{sharedKey, "two occurrences have one key", func(h *history) { h.Runs[6].Key, h.Deliveries[4].Key = h.Runs[3].Key, h.Runs[3].Key }},
		{phantom, "a success without a delivery", func(h *history) { h.Deliveries = h.Deliveries[1:] }},
		{phantom, "the answer was a failure", func(h *history) { h.Deliveries[0].Answered = 500 }},
		{phantom, "another attempt was answered", func(h *history) { h.Deliveries[0].Attempt = 1 }},
		{phantom, "the handler of a worker did not end", func(h *history) { h.Requested[0].ByWorker = true; h.Deliveries[1].Ended = "succeeded" }},
		{phantom, "the handler of a worker lost its lease", func(h *history) {
			h.Requested[0].ByWorker = true
			h.Deliveries[0].Ended, h.Deliveries[1].Ended = "succeeded", "its lease was lost"
		}},
		{ghost, "a delivery of no run", func(h *history) { h.Deliveries = append(h.Deliveries, delivery{Run: "x", Attempt: 1}) }},
		{ghost, "a delivery of an attempt that was never claimed", func(h *history) { h.deliverAgain(0, 3) }},
		{ghost, "a delivery with another key", func(h *history) { h.Deliveries[2].Key = "x" }},
		{ghost, "a delivery with another instant", func(h *history) { h.Deliveries[2].ScheduledAt = second(1.4) }},
		{ghost, "a delivery of a skip", func(h *history) {
			h.Deliveries[4].Run, h.Deliveries[4].Key = h.Runs[5].ID, h.Runs[5].Key
			h.Deliveries[4].ScheduledAt = second(6)
		}},
		{early, "a delivery before its time", func(h *history) { h.Deliveries[2].Arrived = second(1.499) }},
		{repeated, "an attempt was sent twice", func(h *history) { h.deliverAgain(0, 2) }},
		{superfluous, "a run was repeated without a fault", func(h *history) {
			h.settle()
			h.Runs[0].Attempt, h.Runs[0].Attempts = 2, []apiAttempt{{Number: 1, Outcome: "lost"}}
			h.deliverAgain(0, 2)
		}},
		{superfluous, "an attempt was not delivered without a fault", func(h *history) { h.settle(); h.Deliveries = nil }},
		{falseExcuse, "an occurrence was missed without a fault", func(h *history) { h.Faults = false }},
		{unsettled, "a run is still alive", func(h *history) { h.Runs[0].Status = "running" }},
		{diedEarly, "a dead letter had a retry left", func(h *history) { h.Requested[4].Retries = 2 }},
		{diedEarly, "a run went on after its last retry", func(h *history) { h.Requested[4].Retries = 0 }},
		{diedEarly, "a success came after too many failures", func(h *history) { h.Runs[0].Attempts[0].Outcome = "failed" }},
		{diedEarly, "a poison run that lost no worker", func(h *history) { h.Runs[7].Reason = "poison" }},
		{diedEarly, "a run was cancelled without a request", func(h *history) { h.Runs[7].Status = "cancelled" }},
		{diedEarly, "a dead letter was discarded with a retry left", func(h *history) { h.Runs[7].Status = "discarded"; h.Requested[4].Retries = 2 }},
		{diedEarly, "a run that was redriven failed more often than twice its retries allow", func(h *history) {
			h.Requested[4].Retries, h.Requested[4].Redriven = 0, true
			h.Runs[7].Attempt, h.Runs[7].Attempts = 3, append(h.Runs[7].Attempts, apiAttempt{Number: 3, Outcome: "failed", StartedAt: second(4)})
		}},
		{unrecorded, "an attempt is missing", func(h *history) { h.Runs[0].Attempts = nil }},
		{overlapping, "an attempt began before a worker was reaped", func(h *history) { h.Runs[0].Attempts[0].FinishedAt = second(1.3) }},
		{crowded, "a run began while another of its job was running", func(h *history) {
			h.Runs[3].StartedAt, h.Runs[3].FinishedAt = pointer(second(2)), pointer(second(12.5))
			h.Runs[6].StartedAt, h.Runs[6].FinishedAt = pointer(second(12)), pointer(second(12.6))
		}},
		{falseExcuse, "a queue was full that there is not", func(h *history) { h.Runs[4].Reason = "queue_full" }},
		{falseExcuse, "max_missed, by a job that catches up on one", func(h *history) { h.Runs[5].Reason = "max_missed" }},
		{overlapping, "an attempt began before another had failed", func(h *history) { h.Runs[7].Attempts[1].StartedAt = second(3.1) }},
		{unrecorded, "an attempt has another's number", func(h *history) { h.Runs[0].Attempts[0].Number = 2 }},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := validHistory()
			c.harm(&h)
			findings := check(h)
			for _, f := range findings {
				if f.verdict == c.want {
					return
				}
			}
			t.Errorf("the verdict %q is missing; there is %v", c.want, findings)
		})
	}
}

func TestCheckerFindsASecondRunFromDeliveries(t *testing.T) {
	var h history
	h.settle()
	h.Runs = runsOfDeliveries(h.Deliveries)
	if findings := check(h); len(findings) > 0 {
		t.Errorf("valid deliveries have %v", findings)
	}
	h.repeatRun(0)
	h.Runs = runsOfDeliveries(h.Deliveries)
	if findings := check(h); len(findings) != 1 || findings[0].verdict != decidedTwice {
		t.Errorf("two runs of one occurrence have %v", findings)
	}
}

// removeRun removes a run and its deliveries.
func (h *history) removeRun(run int) {
	id := h.Runs[run].ID
	h.Runs = append(h.Runs[:run:run], h.Runs[run+1:]...)
	var kept []delivery
	for _, d := range h.Deliveries {
		if d.Run != id {
			kept = append(kept, d)
		}
	}
	h.Deliveries = kept
}

// repeatRun adds a second run for the same occurrence, with its own id, key and
// delivery.
func (h *history) repeatRun(run int) {
	same := h.Runs[run]
	h.ran(same.Job, same.Kind, same.ScheduledAt, 1)
	r, d := &h.Runs[len(h.Runs)-1], &h.Deliveries[len(h.Deliveries)-1]
	r.ID, r.Key = "again", "again"
	d.Run, d.Key = "again", "again"
}

// deliverAgain adds a delivery of a run under the number of an attempt.
func (h *history) deliverAgain(run, attempt int) {
	r := h.Runs[run]
	h.Deliveries = append(h.Deliveries, delivery{Run: r.ID, Job: r.Job, Key: r.Key, Attempt: attempt, ScheduledAt: r.ScheduledAt,
		Arrived: r.ScheduledAt.Add(time.Second), Answered: 200})
}

// settle turns a history into one without faults: a one-off that ran.
func (h *history) settle() {
	*h = history{Requested: []requestedJob{{ID: "calm", Name: "calm", At: second(1)}}, Jobs: []apiJob{{ID: "calm", Name: "calm"}}}
	h.ran("calm", "scheduled", second(1), 1)
}
