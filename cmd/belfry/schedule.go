package main

import (
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func scheduleCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "schedule",
		Short: "See what a schedule means; no server is needed",
		Long: `See what a schedule means, before a job has it. No server is needed.

EXPR is what the field schedule of a job may hold: cron such as '0 9 * * MON-FRI',
@daily, @every 90s, a calendar rule such as 'FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9', an
interval such as PT15M, or an instant such as 2027-03-01T09:00:00Z. Quote it: the
shell takes a bare * for the names of files.`,
	})
	cmd.AddCommand(scheduleNextCommand(), scheduleExplainCommand(), scheduleCheckCommand())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if strings.HasPrefix(err.Error(), "unknown shorthand flag") {
			return usagef("%w; an expression that begins with a - goes behind a --", err)
		}
		return flagError(err)
	})
	return cmd
}

// oneExpression takes exactly one argument, and knows what a shell makes of several.
func oneExpression(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("name an expression, as in %s '0 9 * * MON-FRI'", cmd.CommandPath())
	case len(args) > 1:
		return usagef("quote the expression, as in %s '0 9 * * MON-FRI': it came as %d words, and the shell takes a bare * for the names of files",
			cmd.CommandPath(), len(args))
	}
	return nil
}

// question is a schedule that somebody asks about, with what stands beside it.
type question struct {
	text     string
	timezone string
	gap      string
	overlap  string
	starts   string
	ends     string
}

func (q *question) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.timezone, "timezone", "", "IANA time `ZONE` of the schedule (default UTC)")
	f.StringVar(&q.gap, "dst-gap", "", dstGapUsage)
	f.StringVar(&q.overlap, "dst-overlap", "", dstOverlapUsage)
	f.StringVar(&q.starts, "starts-at", "", startsUsage)
	f.StringVar(&q.ends, "ends-at", "", endsUsage)
	words(cmd, "dst-gap", dstGaps)
	words(cmd, "dst-overlap", dstOverlaps)
}

// What the flags about time say of themselves, also where a job has them.
const (
	startsUsage     = "nothing runs before this `INSTANT`, such as 2027-03-01T09:00:00+01:00; intervals are counted from it"
	endsUsage       = "nothing runs after this `INSTANT`"
	dstGapUsage     = "what to do about a time that the clock skips: run at the end of the gap, or skip (default run)"
	dstOverlapUsage = "when to run at a time that the clock shows twice: first, both, or auto: both for intervals, else the first (default auto)"
)

var (
	dstGaps     = []string{string(belfry.GapRun), string(belfry.GapSkip)}
	dstOverlaps = []string{"auto", string(belfry.DSTFirst), string(belfry.DSTBoth)}
)

// reading is what a question comes to.
type reading struct {
	rule         schedule.Rule
	resolved     string    // the text with a value for every H, if it has one
	starts, ends time.Time // unset: no limit
	anchor       time.Time // what the rule is counted from, if nobody said
}

// counted tells a schedule that ends after so many times.
var counted = regexp.MustCompile(`(?i)^\s*R[0-9]|COUNT=`)

// read makes a rule of the question as of an instant, at which an interval begins
// that does not say when. It refuses a rule that is over then.
func (q *question) read(now time.Time) (reading, error) { return q.readAs(now, now) }

// readAs is read for a rule that may be over, if the second instant is zero.
func (q *question) readAs(now, over time.Time) (r reading, err error) {
	o := schedule.Options{Timezone: q.timezone, Now: over}
	if o.SkipGap, err = readGap(q.gap); err != nil {
		return r, usagef("--dst-gap: %w", err)
	}
	if o.Overlap, err = readOverlap(q.overlap); err != nil {
		return r, usagef("--dst-overlap: %w", err)
	}
	if r.starts, err = readInstant("starts-at", q.starts); err != nil {
		return r, err
	}
	if r.ends, err = readInstant("ends-at", q.ends); err != nil {
		return r, err
	}
	if !r.ends.IsZero() && !r.starts.Before(r.ends) {
		return r, usagef("--ends-at: must be after --starts-at")
	}
	text, hashed, err := schedule.Resolve(q.text, [16]byte{})
	if err != nil {
		return r, &badSchedule{q.text, err}
	}
	if hashed {
		r.resolved = strings.TrimSpace(text)
	}
	o.Start = r.starts
	r.rule, err = schedule.Parse(text, o)
	if err != nil && o.Start.IsZero() {
		o.Start = now.Truncate(time.Second)
		if counted.MatchString(text) {
			o.Start = o.Start.Add(time.Second) // None of so many is past, as in a new job.
		}
		if r.rule, err = schedule.Parse(text, o); err == nil {
			r.anchor = o.Start
		}
	}
	if err != nil {
		return r, &badSchedule{q.text, err}
	}
	return r, nil
}

func readGap(word string) (skip bool, err error) {
	word, err = oneOf(word, dstGaps)
	return word == string(belfry.GapSkip), err
}

func readOverlap(word string) (schedule.DSTOverlap, error) {
	word, err := oneOf(word, dstOverlaps)
	switch belfry.DSTOverlap(word) {
	case belfry.DSTFirst:
		return schedule.DSTFirst, err
	case belfry.DSTBoth:
		return schedule.DSTBoth, err
	}
	return schedule.DSTAuto, err
}

// readInstant reads a flag that is a point in time; empty is none.
func readInstant(flag, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	if at.UnmarshalText([]byte(text)) != nil {
		return at, usagef("--%s: %q is not an instant with an offset or a Z, such as 2027-03-01T09:00:00+01:00", flag, text)
	}
	if at = at.UTC(); at.Year() < 1970 || at.Year() > 2499 {
		return at, usagef("--%s: must lie in the years 1970 to 2499", flag)
	}
	return at, nil
}

// assumed says what was made up to read a schedule that leaves it to the job.
func (r *reading) assumed() (list []string) {
	if r.resolved != "" {
		list = append(list, "what stands for H depends on the job: this is how it would be for one of them")
	}
	if !r.anchor.IsZero() {
		list = append(list, "it counts from starts_at, which is the time of creation unless it is given: this is how it would be from "+
			r.anchor.UTC().Format(time.RFC3339)+" on")
	}
	return list
}

// remarks is what there is to know about a schedule beside when it runs.
func (r *reading) remarks(now time.Time) []string {
	return append(schedule.Warnings(r.rule, now), r.assumed()...)
}
