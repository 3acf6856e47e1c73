package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var budgetNow = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// numbers writes the numbers from one to another as a list.
func numbers(first, last int) string {
	var list []string
	for n := first; n <= last; n++ {
		list = append(list, fmt.Sprint(n))
	}
	return strings.Join(list, ",")
}

// repeatLine repeats an RRULE as often as a schedule has room for.
func repeatLine(rule string) string {
	text := "DTSTART:20260302T090000"
	for range maxRRules {
		if line := "\nRRULE:" + rule; len(text)+len(line) <= rruleNotation.maxText {
			text += line
		}
	}
	return text
}

// expensiveRules are among those that the search below found. Before there was a budget
// they took up to seconds.
var expensiveRules = []struct{ name, zone, text, refused string }{
	{"count of hours on some days", "UTC", repeatLine("FREQ=HOURLY;BYDAY=SU,MO,TU,WE,TH,FR;COUNT=1000000"), tooExpensive},
	{"count of chosen minutes", "Asia/Gaza", repeatLine("FREQ=HOURLY;INTERVAL=2;BYHOUR=1;BYMINUTE=" + numbers(0, 59) + ";BYSETPOS=1,5,-1;COUNT=1000000"), tooExpensive},
	{"count of seconds in gaps", "America/New_York", repeatLine("FREQ=SECONDLY;BYMONTH=3;BYDAY=SU;BYMONTHDAY=8,9,10,11,12,13,14;BYHOUR=2;COUNT=1000000"), tooExpensive},
	{"count of chosen weekdays", "Africa/Casablanca", repeatLine("FREQ=WEEKLY;BYDAY=MO,TU,WE;BYSETPOS=-1;COUNT=1000000"), tooExpensive},
	{"count of rare seconds", "UTC", repeatLine("FREQ=SECONDLY;INTERVAL=86399;BYHOUR=" + numbers(0, 22) + ";COUNT=1000000"), tooExpensive},
	{"rare seconds", "UTC", repeatLine("FREQ=SECONDLY;INTERVAL=86401;BYHOUR=9;BYMINUTE=0;BYSECOND=0"), tooExpensive},
	{"rare days", "UTC", repeatLine("FREQ=MINUTELY;INTERVAL=1439;BYHOUR=9;BYMINUTE=0;BYDAY=MO;BYMONTHDAY=2"), tooExpensive},
	{"lines that never fire", "UTC", repeatLine("FREQ=DAILY;INTERVAL=7;BYDAY=TU") + "\nRDATE:20300101T000000,24900101T000000", ""},
	{"never", "Europe/Dublin", "DTSTART:20260302T090000 RRULE:FREQ=DAILY;INTERVAL=7;BYDAY=TU", "the schedule never fires"},
	{"a single count", "UTC", "DTSTART:20260302T090000 RRULE:FREQ=HOURLY;BYDAY=MO,TU,WE,TH,FR;COUNT=1000000", ""},
	{"chosen weekdays", "Africa/Casablanca", repeatLine("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=240"), ""},
	{"every second", "Antarctica/Troll", repeatLine("FREQ=SECONDLY"), ""},
}

const tooExpensive = "the schedule takes too long to compute"

func TestExpensiveSchedulesAreRefused(t *testing.T) {
	for _, c := range expensiveRules {
		_, err := Parse(c.text, Options{Timezone: c.zone, Now: budgetNow})
		var e *Error
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.refused != "" && (!errors.As(err, &e) || e.Field != "schedule" || !strings.Contains(e.Message, c.refused)):
			t.Errorf("%s: got %v, want %q", c.name, err, c.refused)
		}
	}
}

// What was accepted stays readable, even if it takes somewhat more steps than a new
// schedule may. Whether a rule is in use does not matter.
func TestStoredSchedulesHaveRoomInTheirBudget(t *testing.T) {
	text := strings.Join(strings.Split(repeatLine("FREQ=HOURLY;BYDAY=MO,TU,WE,TH,FR;COUNT=1000000"), "\n")[:3], "\n")
	for _, stored := range []bool{false, true, false} {
		o := Options{Timezone: "UTC", Now: budgetNow}
		if stored {
			o.Now = time.Time{}
		}
		rule, err := Parse(text, o)
		if accepted := err == nil; accepted != stored {
			t.Errorf("stored %v: %v", stored, err)
		}
		defer func() { _ = rule }() // It stays in use.
	}
}

// stepsOfNext counts the steps of a Next.
func (r *rruleSet) stepsOfNext(after int64) int64 {
	b := &budget{most: 1 << 40}
	r.setBudget(b)
	defer r.setBudget(nil)
	r.Next(time.Unix(after, 0))
	return b.steps
}

// stepsToRead returns the steps that it takes to accept or refuse a candidate, with the
// rule if it is accepted.
func (c candidate) stepsToRead() (*rruleSet, int64) {
	rule, err := parseRRuleSet(c.text(), c.options)
	set, _ := rule.(*rruleSet)
	switch {
	case errors.Is(err, errTooExpensive):
		return nil, storedShare * maxReadSteps
	case err != nil:
		return nil, 0
	case checkFires(rule, budgetNow) != nil || set.checkSteps(maxReadSteps, maxNextSteps) != nil:
		return nil, set.readSteps
	}
	return set, set.readSteps
}

// search looks for the candidate of the highest cost, by small changes.
func search(r *rand.Rand, tries int, cost func(candidate) int64) (best candidate, most int64) {
	best = randomCandidate(r)
	most = cost(best)
	for range tries {
		next := best.mutated(r)
		if n := cost(next); n >= most {
			best, most = next, n
		}
	}
	return best, most
}

// costOfNext is what the search maximizes to find the accepted rules whose occurrences
// are the most expensive: after the last one of a year, or anywhere.
func costOfNext(r *rand.Rand) func(candidate) int64 {
	return func(c candidate) (most int64) {
		set, _ := c.stepsToRead()
		if set == nil {
			return -1
		}
		at := budgetNow.Unix()
		for range 10 {
			most = max(most, set.stepsOfNext(at), set.stepsOfNext(r.Int64N(horizon)))
			next := set.Next(time.Unix(at, 0))
			if next.IsZero() {
				break
			}
			at = next.Unix()
		}
		return most
	}
}

// A rule that was accepted never takes many more steps than was measured when it was
// read: at most those of a year for each line.
func TestNextKeepsToItsBudget(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, most := search(r, 60, costOfNext(r))
		if perLine := int64(4 * 366); most > maxNextSteps+perLine*int64(len(c.lines)) {
			t.Errorf("%d steps: %+v\n%s", most, c.options, c.text())
		}
	}
}

// A set fires when the first of its rules and RDATEs does that no EXDATE removes.
func TestSetCursorFindsTheEarliest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		c := randomCandidate(r).mutated(r)
		rule, err := parseRRuleSet(c.text(), c.options)
		if err != nil {
			continue
		}
		set := rule.(*rruleSet)
		next := InOrder(set)
		at := time.Unix(max(set.begin, 0)+r.Int64N(1<<31), 0)
		for range 20 {
			want := int64(never)
			for t := at.Unix(); want == never || set.excludes(want); t = want {
				want = never
				for _, clock := range set.clocks {
					want = min(want, clock.next(t, horizon))
				}
				if i := slices.IndexFunc(set.rdateInstants, func(d int64) bool { return d > t }); i >= 0 {
					want = min(want, set.rdateInstants[i])
				}
				if want == never {
					break
				}
			}
			if alone, sequential := set.Next(at), next(at); !alone.Equal(instant(want)) || !sequential.Equal(alone) {
				t.Fatalf("%+v\n%s\nafter %v comes %v, in order %v, want %v", c.options, c.text(), at, alone, sequential, instant(want))
			}
			if want == never {
				break
			}
			at = instant(want)
		}
	}
}

// What is counted without visiting it is what is found by visiting it.
func TestCountMatches(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		c := randomCandidate(r)
		rule, err := parseRRuleSet(c.text(), c.options)
		if err != nil {
			continue
		}
		for _, p := range rule.(*rruleSet).rules {
			from := max(p.floor, dayNumber(1990+r.IntN(100), 1, 1)*secondsPerDay) + r.Int64N(400*secondsPerDay)
			end := from + r.Int64N(pick[int64](r, 1000, secondsPerDay, 100*secondsPerDay, 2000*secondsPerDay))
			var walls []int64
			for wall := p.nextMatch(from, end-1); wall != never; wall = p.nextMatch(wall+1, end-1) {
				if walls = append(walls, wall); len(walls) == 5000 {
					end = wall + 1
				}
			}
			if n := p.countMatches(from, end); n != int64(len(walls)) {
				t.Errorf("%s: %d from %d to %d, want %d", c.text(), n, from, end, len(walls))
			}
			for i := 0; i < len(walls); i += 1 + len(walls)/3 {
				if wall, _ := p.nthMatch(from, end, int64(i+1)); wall != walls[i] {
					t.Errorf("%s: number %d is %d, want %d", c.text(), i+1, wall, walls[i])
				}
			}
			if wall, n := p.nthMatch(from, end, int64(len(walls)+1)); wall != never || n != int64(len(walls)) {
				t.Errorf("%s: got %d and %d, want %d", c.text(), wall, n, len(walls))
			}
		}
	}
}

// timed is how long something takes at least.
func timed(run func()) time.Duration {
	took := time.Hour
	for range 3 {
		begin := time.Now()
		run()
		took = min(took, time.Since(begin))
	}
	return took
}

// BenchmarkWorstSchedules searches for the schedules that take the most steps, and
// measures how long they take to be accepted or refused, and for an occurrence.
//
//	go test -run '^$' -bench WorstSchedules ./internal/schedule
func BenchmarkWorstSchedules(b *testing.B) {
	read := func(accepted bool) func(candidate) int64 {
		return func(c candidate) int64 {
			set, steps := c.stepsToRead()
			if accepted != (set != nil) {
				return -1
			}
			return steps
		}
	}
	readAgain := func(c candidate) time.Duration { return timed(func() { c.stepsToRead() }) }
	r := rand.New(rand.NewPCG(1, 1))
	for _, goal := range []struct {
		name    string
		cost    func(candidate) int64
		measure func(candidate) time.Duration
	}{
		{"accepted", read(true), readAgain},
		{"refused", read(false), readAgain},
		{"next", costOfNext(r), func(c candidate) (most time.Duration) {
			set, _ := c.stepsToRead()
			for year := range 100 {
				most = max(most, timed(func() { set.Next(budgetNow.AddDate(year, 0, 0)) }))
			}
			return most
		}},
	} {
		b.Run(goal.name, func(b *testing.B) {
			var worst time.Duration
			for range 30 {
				c, _ := search(r, 200, goal.cost)
				worst = max(worst, goal.measure(c))
			}
			for b.Loop() { // The search is long enough.
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "ms/worst")
		})
	}
	for _, c := range expensiveRules {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				_, _ = parse(c.text, Options{Timezone: c.zone})
			}
		})
	}
}
