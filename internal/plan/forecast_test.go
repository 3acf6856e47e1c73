package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
)

var forecastNow = time.Date(2026, 10, 24, 21, 41, 7, 0, time.UTC) // hours before a clock change in Europe

func notLate() bool { return false }

// forecastJobOf makes a job with its first plan.
func forecastJobOf(t *testing.T, now time.Time, schedule string, changes ...func(*belfry.Spec)) (*Policy, Plan) {
	t.Helper()
	spec := belfry.DefaultSpec()
	spec.Schedule, spec.Timezone = schedule, "UTC"
	for _, change := range changes {
		change(&spec)
	}
	policy, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return policy, First(belfry.NewID(now), 0, policy, now)
}

// countByHand visits every run.
func countByHand(f *Forecaster, policy *Policy, p Plan, minutes, hours []int64) {
	times, _ := policy.Between(p.NominalAt.Add(1), time.UnixMicro(f.weekEnd), 1_000_000)
	times = append([]time.Time{p.NominalAt}, times...)
	if policy.MaxRuns > 0 {
		times = times[:min(len(times), policy.MaxRuns)]
	}
	for _, at := range times {
		if at.Before(time.UnixMicro(f.now)) {
			at = time.UnixMicro(f.now)
		}
		if i := (at.UnixMicro() - f.dayFrom) / minute; i < dayMinutes {
			minutes[i]++
		}
		if i := (at.UnixMicro() - f.weekFrom) / hour; i < weekHours {
			hours[i]++
		}
	}
}

func zone(name string) func(*belfry.Spec)      { return func(s *belfry.Spec) { s.Timezone = name } }
func startsAt(at time.Time) func(*belfry.Spec) { return func(s *belfry.Spec) { s.StartsAt = at } }

func TestForecastCountsWhatThePlansLeadTo(t *testing.T) {
	f := NewForecaster(forecastNow, 0)
	minutes, hours := make([]int64, dayMinutes), make([]int64, weekHours)
	jobs := 0
	for _, tt := range []struct {
		schedule string
		change   func(*belfry.Spec)
	}{
		{"0 0 * * *", zone("UTC")},
		{"0 0 * * *", zone("UTC")},
		{"0 0 * * *", zone("Europe/Berlin")},
		{"30 2 * * *", zone("Europe/Berlin")}, // twice that night, but once for this one
		{"*/20 * * * *", zone("Europe/Berlin")},
		{"*/5 * * * *", zone("UTC")},
		{"* * * * *", zone("UTC")},
		{"* * * * * *", zone("UTC")},
		{"*/7 * 3-5 * * MON", zone("America/New_York")},
		{"0 0 1 1 *", zone("UTC")},
		{"PT90S", startsAt(forecastNow.Add(-time.Hour + 3*time.Microsecond))},
		{"PT90S", startsAt(forecastNow.Add(20 * time.Hour))},
		{"PT7S", startsAt(forecastNow.Add(-time.Hour))},
		{"PT5H", startsAt(forecastNow.Add(-time.Hour))},
		{"R5/2026-10-24T22:00:00Z/PT10M", zone("UTC")},
		{"P1D", startsAt(forecastNow.Add(-time.Hour))},
		{"FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9", func(s *belfry.Spec) { s.StartsAt, s.Timezone = forecastNow, "Asia/Tokyo" }},
		{"DTSTART:20261024T000000 RRULE:FREQ=MINUTELY;INTERVAL=11 RRULE:FREQ=HOURLY RDATE:20261025T000100", zone("UTC")},
		{"2026-10-25T03:00:00Z", zone("UTC")},
		{"2027-10-25T03:00:00Z", zone("UTC")},
		{"*/10 * * * *", func(s *belfry.Spec) { s.EndsAt = forecastNow.Add(90 * time.Minute) }},
		{"* * * * * *", func(s *belfry.Spec) { s.EndsAt = forecastNow.Add(26 * time.Hour) }},
		{"PT1M", func(s *belfry.Spec) { s.StartsAt, s.EndsAt = forecastNow, forecastNow.Add(time.Hour) }},
		{"*/10 * * * *", func(s *belfry.Spec) { s.StartsAt = forecastNow.Add(90 * time.Minute) }},
		{"*/10 * * * *", func(s *belfry.Spec) { s.MaxRuns = 3 }},
		{"*/10 * * * *", func(s *belfry.Spec) { s.MaxRuns = 1 }},
	} {
		policy, p := forecastJobOf(t, forecastNow, tt.schedule, tt.change)
		f.Add(policy, p, 1)
		countByHand(f, policy, p, minutes, hours)
		jobs++
	}
	policy, late := forecastJobOf(t, forecastNow.Add(-3*time.Minute), "0 * * * *") // due at 22:00
	late.NominalAt = forecastNow.Add(-time.Minute).Truncate(time.Minute)
	late.NextAt = late.NominalAt
	f.Add(policy, late, 1)
	countByHand(f, policy, late, minutes, hours)

	got := f.Forecast(notLate, notLate)
	if diff := cmp.Diff(minutes, got.Minutes); diff != "" {
		t.Errorf("by minute: %s", diff)
	}
	if diff := cmp.Diff(hours, got.Hours); diff != "" {
		t.Errorf("by hour: %s", diff)
	}
	if got.Sampled || got.Jobs != int64(jobs)+1 || got.SampledJobs != jobs+1 || got.DayRuns != sum(minutes) || got.WeekRuns != sum(hours) {
		t.Errorf("got %d jobs, %d looked at, sampled %v, %d and %d runs", got.Jobs, got.SampledJobs, got.Sampled, got.DayRuns, got.WeekRuns)
	}
}

// The intervals of a million jobs all have starts of their own.
func TestForecastOfIntervalsWithManyStarts(t *testing.T) {
	f := NewForecaster(forecastNow, 0)
	minutes, hours := make([]int64, dayMinutes), make([]int64, weekHours)
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		step := []string{"PT2M", "PT30S", "PT3H", "PT61S"}[random.IntN(4)]
		policy, p := forecastJobOf(t, forecastNow, step, startsAt(forecastNow.Add(-time.Duration(random.Int64N(int64(time.Hour)))).Truncate(time.Microsecond)))
		f.Add(policy, p, 1)
		countByHand(f, policy, p, minutes, hours)
	}
	got := f.Forecast(notLate, notLate)
	if diff := cmp.Diff(minutes, got.Minutes) + cmp.Diff(hours, got.Hours); diff != "" {
		t.Error(diff)
	}
	if len(f.rules) != 4 {
		t.Errorf("%d rules, want one for each interval", len(f.rules))
	}
}

func TestForecastNamesWhatMakesASpike(t *testing.T) {
	f := NewForecaster(forecastNow, 0)
	add := func(n int, weight float64, schedule string, changes ...func(*belfry.Spec)) {
		for range n {
			policy, p := forecastJobOf(t, forecastNow, schedule, changes...)
			f.Add(policy, p, weight)
		}
	}
	add(50, 20, "0 0 * * *")
	add(30, 1, "0 0 * * *", zone("Europe/Lisbon"))
	add(7, 1, "0 * * * *")
	add(2, 1, "2026-10-25T00:00:30Z")
	add(1, 1, "* * * * * *")
	got := f.Forecast(notLate, notLate).Spikes
	if len(got) != 5 {
		t.Fatalf("%d spikes, want 5", len(got))
	}
	midnight := got[0]
	for i := range midnight.Schedules {
		if n := len(midnight.Schedules[i].Examples); n != min(3, int(midnight.Schedules[i].Jobs)) {
			t.Errorf("%d examples of %+v", n, midnight.Schedules[i])
		}
		midnight.Schedules[i].Examples = nil
	}
	want := belfry.Spike{At: time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC), Runs: 1000 + 7 + 2 + 60, Schedules: []belfry.SpikeSchedule{
		{Schedule: "0 0 * * *", Timezone: "UTC", Jobs: 1000, Runs: 1000},
		{Schedule: "* * * * * *", Timezone: "UTC", Jobs: 1, Runs: 60},
		{Schedule: "0 * * * *", Timezone: "UTC", Jobs: 7, Runs: 7},
		{Schedule: "once", Jobs: 2, Runs: 2},
	}}
	if diff := cmp.Diff(want, midnight); diff != "" {
		t.Error(diff)
	}
	if got[1].At.Hour() != 23 || got[1].Runs != 30+7+60 { // midnight in Lisbon
		t.Errorf("second: %+v", got[1])
	}
}

func TestForecastSpreadsJitter(t *testing.T) {
	f := NewForecaster(forecastNow, 10*time.Minute)
	jitter := func(seconds int) func(*belfry.Spec) { return func(s *belfry.Spec) { s.JitterSeconds = seconds } }
	for range 100 {
		policy, p := forecastJobOf(t, forecastNow, "0 0 * * *")
		f.Add(policy, p, 1)
		policy, p = forecastJobOf(t, forecastNow, "0 12 * * *", jitter(3600))
		f.Add(policy, p, 1)
		policy, p = forecastJobOf(t, forecastNow, "* * * * *", jitter(30))
		f.Add(policy, p, 1)
	}
	policy, p := forecastJobOf(t, forecastNow, "2026-10-25T05:00:00Z", jitter(0))
	f.Add(policy, p, 5)
	got := f.Forecast(notLate, notLate)
	midnight := int(time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC).UnixMicro()-f.dayFrom) / int(minute)
	if got.Peak() != 200 || got.Minutes[midnight] != 200 {
		t.Errorf("the peak is %d, want 200 at midnight", got.Peak())
	}
	with := got.WithJitter
	for i := midnight; i < midnight+10; i++ {
		if n := with.Minutes[i]; n < 109 || n > 111 {
			t.Errorf("minute %d after midnight has %d runs with jitter, want about 110", i-midnight, n)
		}
	}
	if with.JitterSeconds != 600 || with.Peak > 112 || with.Minutes[midnight+10] > 101 || with.PeakAt.IsZero() {
		t.Errorf("with jitter: %d s, peak %d at %v", with.JitterSeconds, with.Peak, with.PeakAt)
	}
	if five := with.Minutes[midnight+300]; five != 105 {
		t.Errorf("%d runs in the minute of the one-off, which has no jitter: want 105", five)
	}
	if a, b := sum(got.Minutes), sum(with.Minutes); a-b > 2 || b-a > 2 { // what leaves the window
		t.Errorf("%d runs without more jitter, %d with it", a, b)
	}
	noon := midnight + 12*60
	if n := sum(got.Minutes[noon : noon+60]); n != 60*100+100 {
		t.Errorf("%d runs in the hour of those with jitter, want 6100", n)
	}
}

// A run whose jitter reaches into a spike is a part of it.
func TestSpikesHaveRunsThatAreLaterByTheirJitter(t *testing.T) {
	f := NewForecaster(forecastNow, 0)
	for range 60 {
		policy, p := forecastJobOf(t, forecastNow, "0 * * * *", func(s *belfry.Spec) { s.JitterSeconds = 600 })
		f.Add(policy, p, 1)
	}
	at := time.Date(2026, 10, 25, 3, 0, 0, 0, time.UTC)
	for i, want := range []int64{6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 0, 0} {
		spike := f.spike(at.UnixMicro()+int64(i)*minute, 6, notLate)
		if got := append(spike.Schedules, belfry.SpikeSchedule{})[0].Runs; got != want {
			t.Errorf("minute %d: %d runs, want %d", i, got, want)
		}
	}
}

// Whatever the schedules cost, the answer comes in time. Then it is an estimate.
func TestForecastIsAnEstimateWhenItIsLate(t *testing.T) {
	f := NewForecaster(forecastNow, 0)
	for i := range 1000 {
		policy, p := forecastJobOf(t, forecastNow, fmt.Sprintf("%d %d * * *", i%60, i/60%24))
		f.Add(policy, p, 1)
	}
	for range 500 {
		policy, p := forecastJobOf(t, forecastNow, "0 12 * * *")
		f.Add(policy, p, 1)
	}
	looks := 0
	got := f.Forecast(func() bool { looks++; return looks > 200 }, notLate)
	if !got.Sampled || got.SampledJobs < 600 || got.SampledJobs > 800 || got.Jobs != 1500 {
		t.Errorf("sampled %v with %d of %d jobs", got.Sampled, got.SampledJobs, got.Jobs)
	}
	if want := 1500 * 7.0; float64(got.WeekRuns) < 0.97*want || float64(got.WeekRuns) > 1.03*want {
		t.Errorf("%d runs in the week, want about %v", got.WeekRuns, want)
	}
	if i := slices.Index(got.Minutes, slices.Max(got.Minutes)); got.Peak() < 500 || (f.dayFrom/minute+int64(i))%1440 != 720 {
		t.Errorf("the peak is %d", got.Peak())
	}
}

func TestForecastOfNothing(t *testing.T) {
	got := NewForecaster(forecastNow, time.Minute).Forecast(notLate, notLate)
	if got.DayRuns != 0 || len(got.Minutes) != 1440 || len(got.Hours) != 168 || got.Spikes == nil || len(got.Spikes) != 0 || got.WithJitter.Peak != 0 || got.Sampled {
		t.Errorf("got %+v", got)
	}
}

func BenchmarkForecast(b *testing.B) {
	for _, schedule := range []string{"@daily", "own minutes", "PT1M", "PT1S"} {
		b.Run(schedule, func(b *testing.B) {
			f := NewForecaster(forecastNow, 5*time.Minute)
			for i := range 20_000 {
				spec := belfry.DefaultSpec()
				if spec.Schedule = schedule; schedule == "own minutes" {
					spec.Schedule = fmt.Sprintf("%d %d * * *", i%60, i/60%24)
				}
				if schedule[0] == 'P' {
					spec.StartsAt = forecastNow.Add(-time.Duration(i) * time.Millisecond)
				}
				policy, err := Compile(spec)
				if err != nil {
					b.Fatal(err)
				}
				f.Add(policy, First(belfry.NewID(forecastNow), 0, policy, forecastNow), 1)
			}
			for b.Loop() {
				f.Forecast(notLate, notLate)
			}
		})
	}
}
