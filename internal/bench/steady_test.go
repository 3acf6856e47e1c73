package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// Every second has as many jobs as the rate says, each once a period, and the others have
// none for months.
func TestSteadyJobsAreDueAtTheRate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		jobs   int
		period time.Duration
	}{{"every minute", 60*3 + 7, time.Minute}, {"every hour", 3600*3 + 7, time.Hour}} {
		c := SteadyConfig{Config: Config{Jobs: tt.jobs, Mode: ModeNode}, Rate: 3, Duration: time.Minute}
		if c.period() != tt.period {
			t.Fatalf("%s: the period is %s", tt.name, c.period())
		}
		s := &session{Config: c.Config}
		policy, err := s.steadyPolicies(c, due)
		if err != nil {
			t.Fatal(err)
		}
		perSecond := map[time.Time]int{}
		idle := 0
		for i := range tt.jobs {
			p := plan.First(belfry.NewID(due), 0, policy(i), due.Add(-time.Microsecond))
			if p.NominalAt.Sub(due) > tt.period {
				idle++
				continue
			}
			if perSecond[p.NominalAt]++; p.NextAt.Before(p.NominalAt) || p.NextAt.Sub(p.NominalAt) > time.Second {
				t.Errorf("%s: the occurrence at %s is due at %s", tt.name, p.NominalAt, p.NextAt)
			}
		}
		if len(perSecond) != int(tt.period.Seconds()) || idle != 7 {
			t.Errorf("%s: jobs are due in %d seconds, and %d are idle", tt.name, len(perSecond), idle)
		}
		for at, n := range perSecond {
			if n != c.Rate {
				t.Errorf("%s: %d jobs are due at %s", tt.name, n, at)
			}
		}
	}
}

func TestYearlyScheduleHasTheInstant(t *testing.T) {
	for _, at := range []time.Time{due, time.Date(2028, 2, 29, 23, 59, 58, 0, time.UTC), time.Date(2026, 12, 1, 1, 2, 3, 0, time.FixedZone("", 7200))} {
		s := &session{Config: Config{Mode: ModeNode}}
		policy, err := plan.Compile(s.spec(yearly(at)))
		if err != nil {
			t.Fatal(err)
		}
		next := policy.Rule.Next(at.Add(-time.Second))
		if after := policy.Rule.Next(next); !next.Equal(at) || after.Sub(next) < 364*24*time.Hour {
			t.Errorf("%s: it is due at %s, and then at %s", at, next, after)
		}
	}
}

func TestSteadyConfigNamesTheFlag(t *testing.T) {
	ok := SteadyConfig{Config: Config{Jobs: 600}, Rate: 10, Duration: time.Minute}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
	for flag, change := range map[string]func(*SteadyConfig){
		"--rate":                     func(c *SteadyConfig) { c.Rate = 0 },
		"--duration":                 func(c *SteadyConfig) { c.Duration = 1500 * time.Millisecond },
		"--jobs: must be at least 6": func(c *SteadyConfig) { c.Jobs = 599 },
	} {
		c := ok
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}

func TestSamples(t *testing.T) {
	var s Samples
	for _, value := range []int64{5, 0, 9, 2} {
		s.add(value)
	}
	if s.Begin != 5 || s.End != 2 || s.Max != 9 {
		t.Errorf("got %+v", s)
	}
}
