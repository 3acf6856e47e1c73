package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// question asks what was decided for an instant of a job. What has no offset is a
// wall time, to be read in the job's zone.
type question struct {
	target
	at   time.Time
	wall string
}

func readQuestion(r *http.Request) (in question, err error) {
	if in.target, err = parseTarget(r); err != nil {
		return in, err
	}
	p, err := pagingOf(r, "at")
	if err != nil {
		return in, err
	}
	if in.wall, err = wallTime(p.query.Get("at")); err != nil {
		p.fault("at", "%s", err)
	} else if in.wall == "" {
		if in.at = p.instant("at"); len(p.faults) > 0 && p.faults[0].Message == noInstant {
			p.faults[0].Message = `must be an instant such as "2027-03-01T09:00:00Z", or a wall time in the job's time zone such as "2027-03-01 09:00"`
		}
	}
	return in, p.err()
}

// wallTime is a time without an offset in the one form that schedules have it in;
// empty if it is none. Its error fits behind the name of a field.
func wallTime(text string) (string, error) {
	for _, form := range [...]string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		at, err := time.Parse(form, text)
		switch {
		case err != nil:
			continue
		case at.Year() < firstYear || at.Year() > lastYear:
			return "", fmt.Errorf("must lie in the years %d to %d", firstYear, lastYear)
		}
		return at.Format("2006-01-02T15:04:05"), nil
	}
	return "", nil
}

// instantOf finds when the clock in the zone of a job shows a wall time: for one
// that it shows twice the first instant, for one that it skips the end of the gap,
// as for a job that is to run once.
func instantOf(wall string, job belfry.Job) (time.Time, error) {
	rule, err := schedule.Parse(wall, schedule.Options{Timezone: job.Timezone})
	if err == nil {
		if at, once := schedule.Once(rule); once {
			return at, nil
		}
	}
	return time.Time{}, refuseParameters(belfry.FieldError{
		Field: "at", Message: "cannot be read as a wall time, which goes from 1970 to 2262; give an instant with an offset or a Z",
	})
}

// why is what is known of an instant.
type why struct {
	At       time.Time          `json:"at"`
	Decision belfry.Decision    `json:"decision"`
	Reason   belfry.Reason      `json:"reason,omitempty"`
	Sentence string             `json:"sentence"`
	Run      *shownRun          `json:"run,omitempty"`
	Rule     belfry.RuleSummary `json:"rule"`
	Revision int                `json:"revision"`
	Previous *time.Time         `json:"previous"`
	Next     *time.Time         `json:"next"`
	WaitsFor *belfry.Wait       `json:"waits_for,omitempty"`
}

func (a *api) explain(ctx context.Context, in question) (answer, error) {
	id, err := a.find(ctx, in.target)
	if err != nil {
		return answer{}, err
	}
	if in.wall != "" {
		job, err := a.control.Get(ctx, in.namespace, id)
		if err != nil {
			return answer{}, err
		}
		if in.at, err = instantOf(in.wall, job); err != nil {
			return answer{}, err
		}
	}
	w, err := a.control.Why(ctx, in.namespace, id, in.at)
	if err != nil {
		return answer{}, err
	}
	out := why{
		At: w.At, Decision: w.Decision, Reason: w.Reason, Sentence: w.Sentence, Rule: w.Rule, Revision: w.Revision,
		Previous: w.Before, Next: w.After, WaitsFor: w.Waits,
	}
	if w.Run != nil {
		run := showRun(*w.Run)
		out.Run = &run
	}
	return answer{status: http.StatusOK, body: out}, nil
}
