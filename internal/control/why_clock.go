package control

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// gap tells of wall times that did not exist. The record stands where the clock
// went on, which need not be an occurrence.
func (q *inquiry) gap(skip belfry.Run) string {
	what := number(skip.SkippedCount, "time") + " of the schedule did not exist that day"
	if q.policy != nil {
		if note := skippedAt(q.policy.Whole, skip.ScheduledAt); note != "" {
			what = note
		}
	}
	return "is when the clock was set forward: " + what + q.gapRule()
}

// comingGap tells of wall times that will not exist, or of which there is no record,
// if the clock goes on at the instant; empty if it does not, or if the job makes up
// for them.
func (q *inquiry) comingGap() string {
	s := q.policy.Spec
	if q.At.Before(s.StartsAt) || !s.EndsAt.IsZero() && q.At.After(s.EndsAt) {
		return ""
	}
	note := skippedAt(q.policy.Whole, q.At)
	if note == "" {
		return ""
	}
	verb := "is"
	if !q.At.After(q.now) {
		verb = "was"
	}
	return "is when the clock " + verb + " set forward: " + note + q.gapRule()
}

// skippedAt says which wall times of a rule the clock skips when it goes on at an
// instant.
func skippedAt(rule schedule.Rule, at time.Time) string {
	return schedule.NoteSkipped(rule, at.Add(-time.Second), at)
}

// gapRule is by which rule such wall times are left out.
func (q *inquiry) gapRule() string {
	if q.spec().DSTGap == "" {
		return " (dst_gap follows missed_window: skip)."
	}
	return " (dst_gap: skip)."
}

// clock is a sentence on what a change of the clock has to do with an occurrence of
// the rule; empty for most.
func (q *inquiry) clock(at time.Time) string {
	if note := schedule.Note(q.policy.Whole, schedule.OccurrenceAt(q.policy.Whole, at)); note != "" {
		return " The clock changes: " + note + "."
	}
	return ""
}

// again is a sentence for somebody who asks about the second time that the clock
// shows what the occurrence before it was named by; empty for others.
func (q *inquiry) again(before time.Time) string {
	const wall = time.DateOnly + time.TimeOnly
	if before.IsZero() || before.In(q.words.zone).Format(wall) != q.At.In(q.words.zone).Format(wall) {
		return ""
	}
	return q.clock(before)
}
