package plan

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

const (
	second = int64(time.Second / time.Microsecond)
	minute = 60 * second
	hour   = 60 * minute

	dayMinutes = 24 * 60
	weekHours  = 7 * 24

	maxSpikes         = 5
	maxSpikeSchedules = 5
	maxSpikeExamples  = 3
)

// Forecaster counts the runs that plans lead to. Jobs are added first, each with the number
// of jobs that it stands for. Those with equal schedules are computed once. The first run of
// a job is known from its plan; the jitter of later ones is taken as evenly distributed.
type Forecaster struct {
	now, dayFrom, dayEnd, weekFrom, weekEnd int64 // in microseconds, like all times here

	jitter int64 // that all recurring jobs have at least in the second of the two counts
	rules  map[forecastRuleKey]*forecastRule
	jobs   int
	weight float64
}

// forecastRuleKey is what the occurrences of a job depend on. Those of intervals depend on
// nothing but the distance, given one of them.
type forecastRuleKey struct {
	text    string
	options schedule.Options
	ends    time.Time
	step    time.Duration
}

type forecastRule struct {
	rule  schedule.Rule
	step  int64 // of intervals; otherwise zero
	ends  int64
	units map[unitKey]*forecastUnit
}

// unitKey is what jobs with the same occurrences may differ in.
type unitKey struct {
	start  int64 // their planned occurrence; if that is due, now, or the last one of an interval
	left   int64 // runs that they may still have, with the planned one; 0: no limit
	jitter int64
	label  forecastLabel
}

// forecastLabel is a schedule as people know it.
type forecastLabel struct {
	schedule, timezone string
	jitterSeconds      int
}

// forecastUnit is jobs whose runs are at the same times, except for their jitter.
type forecastUnit struct {
	unitKey
	once   bool
	jobs   []forecastJob
	weight float64
}

type forecastJob struct {
	id     belfry.ID
	next   int64 // when it is due
	weight float64
}

// NewForecaster makes a forecast from an instant on, and a second one in which every
// recurring job has at least some jitter, unless that is zero.
func NewForecaster(now time.Time, jitter time.Duration) *Forecaster {
	f := &Forecaster{now: now.UnixMicro(), jitter: jitter.Microseconds(), rules: map[forecastRuleKey]*forecastRule{}}
	f.dayFrom, f.weekFrom = f.now-f.now%minute, f.now-f.now%hour
	f.dayEnd, f.weekEnd = f.dayFrom+dayMinutes*minute, f.weekFrom+weekHours*hour
	return f
}

// Add adds a job that has something planned, and stands for so many.
func (f *Forecaster) Add(policy *Policy, p Plan, weight float64) {
	spec := &policy.Spec
	key := forecastRuleKey{text: Text(*spec), options: Options(*spec), ends: spec.EndsAt}
	if !schedule.NeedsStart(key.text) {
		key.options.Start = time.Time{}
	}
	unit := unitKey{start: max(p.NominalAt.UnixMicro(), f.now), jitter: int64(spec.JitterSeconds) * second, label: forecastLabel{spec.Schedule, spec.Timezone, spec.JitterSeconds}}
	if step := schedule.Step(policy.unbounded()); step > 0 {
		key = forecastRuleKey{step: step, ends: spec.EndsAt}
		if unit.start = p.NominalAt.UnixMicro(); unit.start <= f.now {
			unit.start += (f.now - unit.start) / step.Microseconds() * step.Microseconds()
		}
		if step%time.Second == 0 { // Minutes begin with a second: fractions change no count.
			unit.start -= unit.start % second
		}
	}
	if p.Once {
		key, unit.label = forecastRuleKey{}, forecastLabel{schedule: belfry.ScheduleOnce}
	}
	if spec.MaxRuns > 0 {
		unit.left = max(int64(spec.MaxRuns)-p.RunsMade, 1)
	}
	rule := f.rules[key]
	if rule == nil {
		rule = &forecastRule{rule: policy.unbounded(), step: key.step.Microseconds(), ends: math.MaxInt64, units: map[unitKey]*forecastUnit{}}
		if !spec.EndsAt.IsZero() {
			rule.ends = spec.EndsAt.UnixMicro()
		}
		f.rules[key] = rule
	}
	u := rule.units[unit]
	if u == nil {
		u = &forecastUnit{unitKey: unit, once: p.Once}
		rule.units[unit] = u
	}
	u.jobs = append(u.jobs, forecastJob{p.JobID, max(p.NextAt.UnixMicro(), f.now), weight})
	u.weight += weight
	f.weight += weight
	f.jobs++
}

// Forecast counts. When it is late it stops, with what is then an estimate from the jobs
// that were computed: those whose schedules most jobs have come first, in any order
// otherwise. When it is too late it stops to look for what makes the spikes. Names of jobs
// are left to the caller.
func (f *Forecaster) Forecast(late, tooLate func() bool) belfry.Forecast {
	items := f.items()
	sure, single := f.newCounts(), f.newCounts() // of schedules of several jobs and of one
	done, doneSingle, jobs := 0.0, 0.0, 0
	for _, item := range items {
		counts := sure
		if item.jobs == 1 && !item.units[0].once {
			counts = single
		}
		line, ok := f.timeline(item, late)
		for _, u := range item.units {
			f.countFirst(sure, u, line)
			if !ok {
				continue
			}
			jobs += len(u.jobs)
			if done += u.weight; counts == single {
				doneSingle += u.weight
			}
			f.countLater(counts, item.forecastRule, u, line)
		}
	}
	if rest := f.weight - done; jobs < f.jobs {
		if doneSingle > 0 {
			single.scale((doneSingle + rest) / doneSingle)
		} else if done > 0 {
			sure.scale(f.weight / done)
		}
	}
	return f.result(sure.plus(single), jobs, tooLate)
}

// result is the answer for some counts.
func (f *Forecaster) result(c *forecastCounts, jobs int, tooLate func() bool) belfry.Forecast {
	minutes := c.day.rounded()
	out := belfry.Forecast{
		At: time.UnixMicro(f.now).UTC(), Jobs: int64(math.Round(f.weight)), Sampled: jobs < f.jobs, SampledJobs: jobs, MinutesFrom: time.UnixMicro(f.dayFrom).UTC(),
		Minutes: minutes, HoursFrom: time.UnixMicro(f.weekFrom).UTC(), Hours: c.week.rounded(), Spikes: []belfry.Spike{},
	}
	out.DayRuns, out.WeekRuns = sum(out.Minutes), sum(out.Hours)
	for _, i := range highest(minutes, maxSpikes) {
		out.Spikes = append(out.Spikes, f.spike(f.dayFrom+int64(i)*minute, minutes[i], tooLate))
	}
	if f.jitter > 0 {
		with := &belfry.JitterForecast{JitterSeconds: int(f.jitter / second), Minutes: c.jittered.rounded()}
		if top := highest(with.Minutes, 1); len(top) > 0 {
			with.Peak, with.PeakAt = with.Minutes[top[0]], time.UnixMicro(f.dayFrom+int64(top[0])*minute).UTC()
		}
		out.WithJitter = with
	}
	return out
}

// items are what is computed at a time: a rule with all its jobs, or jobs of an interval.
func (f *Forecaster) items() (items []forecastItem) {
	for _, rule := range f.rules {
		var units []*forecastUnit
		for _, u := range rule.units {
			if units = append(units, u); rule.step > 0 || u.once {
				items, units = append(items, forecastItem{rule, units, len(u.jobs)}), nil
			}
		}
		if len(units) > 0 {
			n := 0
			for _, u := range units {
				n += len(u.jobs)
			}
			items = append(items, forecastItem{rule, units, n})
		}
	}
	rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	slices.SortStableFunc(items, func(a, b forecastItem) int { return cmp.Compare(b.jobs, a.jobs) })
	return items
}

type forecastItem struct {
	*forecastRule
	units []*forecastUnit
	jobs  int
}

// spike is a minute with what makes it.
func (f *Forecaster) spike(from, runs int64, tooLate func() bool) belfry.Spike {
	type part struct {
		belfry.SpikeSchedule
		jobs, runs float64
	}
	parts := map[forecastLabel]*part{}
	for _, rule := range f.rules {
		for _, u := range rule.units {
			jobs, later := 0.0, 0.0
			if !tooLate() {
				later = rule.laterWithin(u, from, from+minute)
			}
			var examples []belfry.SpikeJob
			for _, j := range u.jobs {
				first := j.next >= from && j.next < from+minute
				if first {
					jobs += j.weight
				}
				if (first || later > 0) && len(examples) < maxSpikeExamples {
					examples = append(examples, belfry.SpikeJob{JobID: j.id})
				}
			}
			if jobs == 0 && later == 0 {
				continue
			}
			p := parts[u.label]
			if p == nil {
				p = &part{SpikeSchedule: belfry.SpikeSchedule{Schedule: u.label.schedule, Timezone: u.label.timezone, JitterSeconds: u.label.jitterSeconds}}
				parts[u.label] = p
			}
			p.runs += jobs + later*u.weight
			p.jobs += min(jobs+later*u.weight, u.weight)
			p.Examples = append(p.Examples, examples[:min(len(examples), maxSpikeExamples-len(p.Examples))]...)
		}
	}
	out := belfry.Spike{At: time.UnixMicro(from).UTC(), Runs: runs, Schedules: []belfry.SpikeSchedule{}}
	for _, p := range parts {
		if p.Runs, p.Jobs = int64(math.Round(p.runs)), int64(math.Ceil(p.jobs-1e-6)); p.Runs > 0 {
			out.Schedules = append(out.Schedules, p.SpikeSchedule)
		}
	}
	slices.SortFunc(out.Schedules, func(a, b belfry.SpikeSchedule) int {
		return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Schedule, b.Schedule), cmp.Compare(a.Timezone, b.Timezone))
	})
	out.Schedules = out.Schedules[:min(len(out.Schedules), maxSpikeSchedules)]
	return out
}

// highest returns the places of the highest numbers that are not zero, highest first.
func highest(list []int64, n int) (top []int) {
	for i, v := range list {
		at := len(top)
		for at > 0 && v > list[top[at-1]] {
			at--
		}
		if v > 0 && at < n {
			top = slices.Insert(top, at, i)
			top = top[:min(len(top), n)]
		}
	}
	return top
}

func sum(list []int64) (n int64) {
	for _, v := range list {
		n += v
	}
	return n
}
