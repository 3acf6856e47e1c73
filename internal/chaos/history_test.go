package chaos

import (
	"strings"
	"time"
)

// history is what is known at the end of a test: what was requested, what the receiver
// recorded and what the API shows.
type history struct {
	Requested  []requestedJob
	Triggers   []requestedTrigger
	Deliveries []delivery
	Jobs       []apiJob
	Runs       []apiRun

	// Faults were injected: attempts may have been repeated and occurrences missed.
	Faults bool
}

// requestedJob is a job that the driver requested: a one-off at an instant, or a
// recurring one whose occurrences are the multiples of Every since 1970.
type requestedJob struct {
	ID   string // as acknowledged; empty: the outcome is unknown
	Name string // no two jobs have the same
	At   time.Time

	// Occurrences of a recurring job from From on and before Until must be
	// decided, those before End may be.
	Every            time.Duration
	From, Until, End time.Time
	Retries          int
	OneAtATime       bool // overlap skip or queue
	Queues           bool // overlap queue
	CatchesUp        bool // for each of the missed occurrences
	ByWorker         bool // a worker's handler does it, and says when it is done
	Redriven         bool // once, if its run was dead: it had all its retries again
}

// requestedTrigger is a trigger that the driver requested.
type requestedTrigger struct {
	Job string
	Run string // as acknowledged; empty: the outcome is unknown
}

// delivery is one request that reached the receiver. That of a worker's handler is
// the first thing that it does.
type delivery struct {
	Run, Job, Key string
	Attempt       int
	ScheduledAt   time.Time
	Arrived       time.Time
	Answered      int  // zero: not at all
	Over          bool // it was answered, or its caller is gone
	OverAt        time.Time

	// Of a worker's handler: the process, and how the handler says that it ended.
	Worker, Ended string
	EndedAt       time.Time
}

// apiJob is a job as the API shows it.
type apiJob struct {
	ID        string     `json:"job_id"`
	Name      string     `json:"name"`
	Status    string     `json:"status"`
	NextRunAt *time.Time `json:"next_run_at"`
}

// apiRun is a run or a skip as the API shows it.
type apiRun struct {
	ID           string       `json:"run_id"`
	Job          string       `json:"job_id"`
	Kind         string       `json:"kind"`
	Status       string       `json:"status"`
	Reason       string       `json:"reason"`
	Key          string       `json:"idempotency_key"`
	ScheduledAt  time.Time    `json:"scheduled_at"`
	FiredAt      time.Time    `json:"fired_at"`
	StartedAt    *time.Time   `json:"started_at"`
	FinishedAt   *time.Time   `json:"finished_at"`
	Attempt      int          `json:"attempt"`
	Output       string       `json:"output"`
	Worker       string       `json:"worker_id"`
	SkippedTo    *time.Time   `json:"skipped_to"`
	SkippedCount int64        `json:"skipped_count"`
	Attempts     []apiAttempt `json:"attempts"`
}

// apiAttempt is an attempt that did not succeed.
type apiAttempt struct {
	Number      int       `json:"attempt"`
	Outcome     string    `json:"outcome"`
	Worker      string    `json:"worker_id"`
	StartedAt   time.Time `json:"started_at"`
	FinishedAt  time.Time `json:"finished_at"`
	LateOutcome string    `json:"late_outcome"`
}

func (r *apiRun) skipped() bool { return r.Status == "skipped" }

func (r *apiRun) settled() bool {
	switch r.Status {
	case "succeeded", "dead", "skipped", "cancelled", "discarded":
		return true
	}
	return false
}

// began is when an attempt began, as far as the API shows it.
func (r *apiRun) began(attempt int) time.Time {
	switch {
	case attempt <= len(r.Attempts):
		return r.Attempts[attempt-1].StartedAt
	case attempt == r.Attempt && r.StartedAt != nil:
		return *r.StartedAt
	}
	return time.Time{}
}

// runsOf returns the runs of the jobs.
func (h *history) runsOf(jobs []requestedJob) []apiRun {
	mine := map[string]bool{}
	for _, j := range jobs {
		mine[j.ID] = true
	}
	var runs []apiRun
	for _, r := range h.Runs {
		if mine[r.Job] {
			runs = append(runs, r)
		}
	}
	return runs
}

// occurrences lists those of a job from the first to the last instant.
func (j *requestedJob) occurrences(first, last time.Time) []time.Time {
	if j.Every == 0 {
		if j.At.Before(first) || j.At.After(last) {
			return nil
		}
		return []time.Time{j.At}
	}
	step := int64(j.Every / time.Second)
	var all []time.Time
	for s := first.Unix(); s <= last.Unix(); s++ {
		if at := time.Unix(s, 0); s%step == 0 && !at.Before(first) && !at.After(last) {
			all = append(all, at)
		}
	}
	return all
}

// runsOfDeliveries makes runs from the deliveries, for a test that has no other record
// of them.
func runsOfDeliveries(deliveries []delivery) []apiRun {
	var runs []apiRun
	index := map[string]int{}
	for _, d := range deliveries {
		i, known := index[d.Run]
		if !known {
			kind := "scheduled"
			if strings.HasSuffix(d.Key, ":"+d.Run) {
				kind = "manual"
			}
			i = len(runs)
			index[d.Run] = i
			runs = append(runs, apiRun{ID: d.Run, Job: d.Job, Kind: kind, Key: d.Key, ScheduledAt: d.ScheduledAt, Status: "running"})
		}
		runs[i].Attempt = max(runs[i].Attempt, d.Attempt)
		if d.Answered/100 == 2 {
			runs[i].Status = "succeeded"
		}
	}
	return runs
}
