package schedule

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// These tests walk through every change of a clock from 2000 to 2040 in every zone
// of the database, for hundreds of rules and all choices of what a change does. By
// default they take one change of every kind; BELFRY_TEST_ALL_ZONES=1 takes all.

// clockChange is a moment at which the clock of a zone changes.
type clockChange struct {
	zone          string
	at            int64
	before, after int64 // offsets
	first         bool  // of its kind
}

// listClockChanges lists the changes from 2000 to 2040, those of all zones or one of
// each kind.
func listClockChanges[K comparable](t *testing.T, all bool, kind func(clockChange) K) (list []clockChange) {
	from, to := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	known := map[K]bool{}
	for _, name := range zoneNames() {
		z, err := loadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range z.periods {
			if i == 0 || p.start < from || p.start >= to {
				continue
			}
			c := clockChange{zone: name, at: p.start, before: z.periods[i-1].offset, after: p.offset}
			c.first = !known[kind(c)]
			if known[kind(c)] = true; c.first || all {
				list = append(list, c)
			}
		}
	}
	return list
}

func allZones() bool { return os.Getenv("BELFRY_TEST_ALL_ZONES") != "" }

// changeShape is all that the wall times at a change depend on but for the date.
func changeShape(c clockChange) [3]int64 {
	return [3]int64{c.before, c.after, (c.at + c.before) % (24 * 60 * 60)}
}

// changeIdentity is all that the wall times at a change depend on.
func changeIdentity(c clockChange) [3]int64 { return [3]int64{c.before, c.after, c.at} }

// cronMatcher is an expression as the walker reads it: its times of day and its
// days.
type cronMatcher struct {
	expr     string
	times    []bool // of a day, in units
	days     []bool // from 1970 to 2041
	interval bool
	unit     int64
	now      []bool // whether it matches each step of a stretch
}

func newCronMatcher(expr string, unit int64) *cronMatcher {
	text := &referenceCron{strings.Fields(expr)}
	r := &cronMatcher{expr: expr, interval: text.interval(), unit: unit}
	first := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	for day := first; day.Year() < 2042; day = day.AddDate(0, 0, 1) {
		r.days = append(r.days, day.Year() >= 1999 && text.matchesDay(day))
	}
	fields := text.clockFields()
	if len(fields) == 2 {
		fields = append([]string{"0"}, fields...)
	}
	var clock [3][60]bool
	for i, high := range []int{59, 59, 23} {
		for value := range high + 1 {
			clock[i][value] = listContains(fields[i], value, 0, high)
		}
	}
	for s := int64(0); s < 24*60*60; s += unit {
		r.times = append(r.times, clock[0][s%60] && clock[1][s/60%60] && clock[2][s/3600])
	}
	return r
}

func (r *cronMatcher) matches(wall int64) bool {
	perDay := int64(len(r.times))
	day := wall / perDay
	return r.times[wall-day*perDay] && r.days[day]
}

// changeWindow is the time around a change, in units.
type changeWindow struct {
	clockChange
	start int64
	wall  []int64
	again []bool // the wall time has been shown before
	gap   int    // the step at which the clock has jumped ahead, or -1
}

func newChangeWindow(t *testing.T, c clockChange, around, unit int64) *changeWindow {
	location, err := LoadZone(c.zone)
	if err != nil {
		t.Fatal(err)
	}
	s := &changeWindow{clockChange: c, start: c.at - around, gap: -1}
	shown := map[int64]bool{}
	for at := s.start; at < c.at+around; at += unit {
		_, offset := time.Unix(at, 0).In(location).Zone()
		wall := at + int64(offset)
		if wall%unit != 0 {
			t.Fatalf("%s: offset %d does not fit into steps of %d s", c.zone, offset, unit)
		}
		wall /= unit
		if n := len(s.wall); n > 0 && wall > s.wall[n-1]+1 {
			s.gap = n
		}
		s.wall, s.again = append(s.wall, wall), append(s.again, shown[wall])
		shown[wall] = true
	}
	return s
}

// occurrences lists the instants at which a rule fires, when it fires at both times
// a wall time is shown or at the first, and makes up for what is skipped or not.
func (s *changeWindow) occurrences(r *cronMatcher, both, skip bool) (list []int64) {
	for k, wall := range s.wall {
		fires := r.now[k] && (both || !s.again[k])
		if k == s.gap && !skip && !fires {
			shift := wall - s.wall[k-1] - 1
			for skipped := wall - shift; skipped < wall && !fires; skipped++ {
				fires = r.matches(skipped) && !(r.interval && r.matches(skipped+shift))
			}
		}
		if fires {
			list = append(list, s.start+int64(k)*r.unit)
		}
	}
	return list
}

// compare asks for the occurrences of the stretch in turn and from between them.
func (s *changeWindow) compare(t *testing.T, r *cronMatcher, random *rand.Rand) {
	end := s.start + int64(len(s.wall))*r.unit
	r.now = r.now[:0]
	for _, wall := range s.wall {
		r.now = append(r.now, r.matches(wall))
	}
	for _, skip := range []bool{false, true} {
		lists := map[bool][]int64{true: s.occurrences(r, true, skip), false: s.occurrences(r, false, skip)}
		for _, overlap := range []DSTOverlap{DSTAuto, DSTFirst, DSTBoth} {
			o := Options{Timezone: s.zone, SkipGap: skip, Overlap: overlap}
			rule := mustParse(t, r.expr, o)
			want := lists[overlap == DSTBoth || overlap == DSTAuto && r.interval]
			asked := s.start - 1
			for _, at := range append(slices.Clip(want), end) {
				got := rule.Next(time.Unix(asked, 0)).Unix()
				if got != at && (at != end || got < end && got > 0) {
					t.Fatalf("%s %+v: after %v comes %v, want %v", r.expr, o, time.Unix(asked, 0).UTC(), time.Unix(got, 0).UTC(), time.Unix(at, 0).UTC())
				}
				if at != end && at-asked > 1 && random.IntN(4) == 0 {
					between := asked + random.Int64N(at-asked)
					if got := rule.Next(time.Unix(between, 0)).Unix(); got != at {
						t.Fatalf("%s %+v: after %v comes %v, want %v", r.expr, o, time.Unix(between, 0).UTC(), time.Unix(got, 0).UTC(), time.Unix(at, 0).UTC())
					}
				}
				asked = at
			}
		}
	}
}

// randomExpressions are rules that have something to do with the hours in which
// clocks change, and n random ones.
func randomExpressions(n int) []string {
	list := []string{
		"* * * * *", "*/15 * * * *", "5,10,35 * * * *", "30 * * * *", "0 * * * *", "7-52/9 * * * *", "*/7 * * * *",
		"15,45 1-3 * * *", "0 2,3 * * *", "*/20 2 * * *", "*/15 1 * * *", "0 */2 * * *", "0 */6 * * *", "0 1-23/2 * * *", "0 */3 * * *",
		"50-10/5 22-2 * * *", "0 12 * * 1-5", "0 0 1 * *", "30 2 31 * *", "0 0 L * *", "0 2 L-3 * *", "30 1 LW * *", "0 9 15W * *",
		"30 2 * * 0L", "0 0 * * 7#2", "30 2 13 * 5", "30 2 */2 * 0", "0 0 30 12 *", "*/30 0-3 * 3,10,11 *", "45 2 20-5 OCT-APR FRI-MON",
		"0-59 1 * * *", "59-58 * * * *", "0-58 0-3 * * *", "0 0-23 * * *", "*/5 0,23 * * *", "0,30 0-4,22-23 * * *", "10/20 2/2 * * *",
		"0,15,30,45 * * * *", "0,15,30,45 1 * * *", "*/40 * * * *", "*/31 2-3 * * *",
	}
	for hour := range 5 {
		for _, minute := range []int{0, 1, 15, 29, 30, 45, 59} {
			list = append(list, fmt.Sprintf("%d %d * * *", minute, hour), fmt.Sprintf("%d %d * * *", minute, (hour+22)%24))
		}
	}
	random := rand.New(rand.NewPCG(9, 10))
	for len(list) < n {
		fields := []string{randomField(random, 0, 59), randomField(random, 0, 4), "*", "*", "*"}
		switch random.IntN(5) {
		case 0:
			fields[1] = "*"
		case 1:
			fields[1] = randomField(random, 0, 23)
		case 2:
			fields[2] = randomField(random, 1, 31)
		case 3:
			fields[4] = randomField(random, 0, 6)
		}
		expr := strings.Join(fields, " ")
		if _, err := Parse(expr, Options{}); err == nil {
			list = append(list, expr)
		}
	}
	return list
}

func TestCronAgreesWithEveryMinuteAroundAllChanges(t *testing.T) {
	changes := listClockChanges(t, false, changeShape)
	if allZones() {
		changes = listClockChanges(t, true, changeIdentity)
	}
	expressions := randomExpressions(300)
	if raceDetected() || testing.Short() {
		expressions = randomExpressions(0)[:20]
	}
	const parts = 2
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(11, uint64(part)))
			var rules []*cronMatcher
			for i, expr := range expressions {
				if i%parts == part {
					rules = append(rules, newCronMatcher(expr, 60))
				}
			}
			for j, c := range changes {
				s := newChangeWindow(t, c, 26*60*60, 60)
				for i, r := range rules {
					// Zones that change together share the rules between them.
					if allZones() && c.first || !allZones() && (i+j)%3 == 0 || (i+j)%10 == 0 {
						s.compare(t, r, random)
					}
				}
			}
		})
	}
	t.Logf("%d changes of clocks, %d rules", len(changes), len(expressions))
}

func TestCronAgreesWithEverySecondAroundAllChanges(t *testing.T) {
	// One change of every length and time of day will do, whatever the offset.
	changes := listClockChanges(t, false, func(c clockChange) [2]int64 { return [2]int64{c.after - c.before, (c.at + c.before) % (24 * 60 * 60)} })
	if allZones() {
		changes = listClockChanges(t, false, changeIdentity)
	}
	random := rand.New(rand.NewPCG(13, 14))
	var rules []*cronMatcher
	for _, expr := range []string{
		"* * * * * *", "*/7 * * * * *", "0 * * * * *", "30 30 2 * * *", "15,45 * 1-2 * * *", "0-58 59 1 * * *", "*/40 */40 2 * * *",
		"59 59 23 * * *", "0 0 0 * * *", "30 44 0 * * *", "29 44 0 * * *", "*/30 * 0 * * *", "0 15 */6 * * *", "10,20,40 * * * * *",
		"0 5,10,35 * * * *", "1 0 12 30 12 *", "* 40-50 0,2 * * *", "*/11 */13 * * * *", "59 59 1,2,3 * * *", "1 0 0-4 * * *",
		"0-59 0 2 * * *", "0-58 0-58 0-22 * * *", "13/20 29-31 * * * *", "0 0 */2 * * *", "30 */20 1-3 * * SUN",
	} {
		rules = append(rules, newCronMatcher(expr, 1))
	}
	if raceDetected() || testing.Short() {
		changes, rules = changes[:5], rules[:8]
	}
	for i, c := range changes {
		shift := max(c.after-c.before, c.before-c.after)
		s := newChangeWindow(t, c, shift+70*60, 1)
		for j, r := range rules {
			if allZones() || (i+j)%3 == 0 {
				s.compare(t, r, random)
			}
		}
	}
	t.Logf("%d changes of clocks, %d rules", len(changes), len(rules))
}
