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

// Preview says when a schedule fires after an instant. It refuses what Create would
// refuse at that instant, but for a one-off that is over.
func (c *Control) Preview(of PreviewOf) (belfry.Preview, error) {
	if of.After.IsZero() {
		of.After = c.now()
	}
	spec := belfry.Spec{
		Schedule: of.Schedule, Timezone: of.Timezone, DSTGap: of.DSTGap, DSTOverlap: of.DSTOverlap, StartsAt: of.StartsAt, EndsAt: of.EndsAt,
	}
	e := examination{examiner: c.examiner(of.After.UTC()), lenient: true}
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
		return belfry.Preview{}, &belfry.Error{Code: belfry.Invalid, Message: "the schedule is not valid", Fields: e.faults}
	}
	return preview(policy, of), nil
}

func preview(policy *plan.Policy, of PreviewOf) belfry.Preview {
	spec, zone := policy.Spec, schedule.Location(policy.Whole)
	p := belfry.Preview{
		Schedule: spec.Schedule, Resolved: spec.Resolved, Timezone: spec.Timezone, StartsAt: spec.StartsAt,
		ZoneVersion: schedule.ZoneVersion(), Description: schedule.Describe(policy.Whole), Warnings: append([]string{}, schedule.Warnings(policy.Whole, of.After)...), Next: []belfry.Occurrence{},
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
		o := belfry.Occurrence{At: at, Local: local.Format(time.RFC3339Nano), Weekday: local.Weekday().String(), Note: schedule.Note(policy.Whole, schedule.OccurrenceAt(policy.Whole, at))}
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
