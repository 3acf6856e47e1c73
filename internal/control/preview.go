package control

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// How many occurrences a preview lists.
const (
	defaultPreview = 10
	maxPreview     = 100
)

// PreviewOf is a schedule that somebody asks about.
type PreviewOf struct {
	Schedule   string
	Timezone   string
	DSTGap     belfry.DSTGap
	DSTOverlap belfry.DSTOverlap
	StartsAt   time.Time
	EndsAt     time.Time
	After      time.Time // zero: now
	Count      int       // zero: 10
	JobID      belfry.ID // for which an H is resolved
}

// Preview is what a schedule means.
type Preview struct {
	Schedule    string
	Resolved    string // with every H replaced; empty if there is none
	Timezone    string
	StartsAt    time.Time // also if it is only what the schedule would be counted from
	ZoneVersion string
	Description string
	Warnings    []string
	Next        []PreviewOccurrence
}

// PreviewOccurrence is one of the next times.
type PreviewOccurrence struct {
	At      time.Time // in UTC
	Local   string    // in the time zone, with its offset
	Weekday string    // of the local time
	Note    string    // what a change of the clock has to do with it; mostly empty
}

// Preview says when a schedule fires after an instant. It refuses what Create would
// refuse at that instant, but for a one-off that is over.
func (c *Control) Preview(of PreviewOf) (Preview, error) {
	if of.After.IsZero() {
		of.After = c.now()
	}
	spec := belfry.Spec{
		Schedule: of.Schedule, Timezone: of.Timezone, DSTGap: of.DSTGap, DSTOverlap: of.DSTOverlap, StartsAt: of.StartsAt, EndsAt: of.EndsAt,
	}
	e := examination{examiner: newExaminer(of.After.UTC()), lenient: true}
	e.schedule(&spec, of.JobID)
	if of.Count == 0 {
		of.Count = defaultPreview
	}
	e.between("count", float64(of.Count), 1, maxPreview)
	if y := of.After.UTC().Year(); y < firstYear || y > lastYear {
		e.fault("after", "must lie in the years %d to %d", firstYear, lastYear)
	}
	var policy *plan.Policy
	if len(e.faults) == 0 {
		policy = e.compile(spec)
	}
	if len(e.faults) > 0 {
		return Preview{}, &belfry.Error{Code: belfry.Invalid, Message: "the schedule is not valid", Faults: e.faults}
	}
	return preview(policy, of), nil
}

func preview(policy *plan.Policy, of PreviewOf) Preview {
	spec, zone := policy.Spec, schedule.Location(policy.Whole)
	p := Preview{
		Schedule: spec.Schedule, Resolved: spec.Resolved, Timezone: spec.Timezone, StartsAt: spec.StartsAt,
		ZoneVersion: schedule.ZoneVersion(), Description: schedule.Describe(policy.Whole), Warnings: schedule.Warnings(policy.Whole, of.After),
	}
	if spec.Resolved != "" && of.JobID.IsZero() {
		p.Warnings = append(p.Warnings, "what stands for H depends on the job: this is how it would be for one of them")
	}
	if of.StartsAt.IsZero() && !spec.StartsAt.IsZero() {
		p.Warnings = append(p.Warnings, "it counts from starts_at, which is the time of creation unless it is given: this is how it would be from "+
			spec.StartsAt.Format(time.RFC3339)+" on")
	}
	last := of.After
	for range of.Count {
		at := policy.Rule.Next(last)
		if at.IsZero() {
			break
		}
		local := at.In(zone)
		o := PreviewOccurrence{At: at, Local: local.Format(time.RFC3339Nano), Weekday: local.Weekday().String(), Note: schedule.Note(policy.Whole, schedule.OccurrenceAt(policy.Whole, at))}
		if left := schedule.NoteSkipped(policy.Whole, later(last, spec.StartsAt.Add(-1)), at); left != "" && o.Note != "" {
			o.Note = left + "; " + o.Note
		} else if left != "" {
			o.Note = left
		}
		p.Next = append(p.Next, o)
		last = at
	}
	return p
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
