package schedule

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The walker knows the occurrences of a rule by looking at every moment of a
// stretch of time and at every wall time that the stretch leaves out. It has its
// own reading of expressions and shares nothing with Next but the zone's data.

// cronWalk is a stretch of time in one zone, in steps of a minute or a second.
type cronWalk struct {
	zone  string
	start int64         // first instant
	unit  int64         // seconds in a step
	wall  []int64       // wall time of every step, in units
	first map[int64]int // steps at which a repeated wall time is shown first
	gaps  []int         // steps before which wall times are skipped
}

func newCronWalk(t testing.TB, zone string, from, to time.Time, unit time.Duration) *cronWalk {
	location, err := LoadZone(zone)
	if err != nil {
		t.Fatal(err)
	}
	w := &cronWalk{zone: zone, start: from.Unix(), unit: int64(unit / time.Second), first: map[int64]int{}}
	for at := from; at.Before(to); at = at.Add(unit) {
		_, offset := at.In(location).Zone()
		wall := at.Unix() + int64(offset)
		if wall%w.unit != 0 {
			t.Fatalf("%s: offset %d does not fit into steps of %v", zone, offset, unit)
		}
		w.wall = append(w.wall, wall/w.unit)
	}
	for k := 1; k < len(w.wall); k++ {
		switch shift := w.wall[k] - w.wall[k-1] - 1; {
		case shift > 0:
			w.gaps = append(w.gaps, k)
		case shift < 0:
			for i := range -shift {
				w.first[w.wall[k]+i] = k - int(-shift) + int(i)
			}
		}
	}
	return w
}

// occurrences lists the steps at which a rule fires, in order, with and without
// making up for skipped wall times.
func (w *cronWalk) occurrences(rule *referenceCron) (run, skip []int) {
	matches, interval := rule.matcher(w.unit), rule.interval()
	gaps := append(w.gaps, len(w.wall))
	for k, wall := range w.wall {
		fires := matches(wall)
		if fires && !interval {
			first, repeated := w.first[wall]
			fires = !repeated || first == k
		}
		if fires {
			skip = append(skip, k)
		}
		if gaps[0] == k {
			gaps = gaps[1:]
			shift := wall - w.wall[k-1] - 1
			for skipped := wall - shift; skipped < wall; skipped++ {
				if matches(skipped) && !(interval && matches(skipped+shift)) {
					fires = true
				}
			}
		}
		if fires {
			run = append(run, k)
		}
	}
	return run, skip
}

// compare asks the rule for all occurrences of the stretch in turn, and for the
// next one from random instants.
func (w *cronWalk) compare(t *testing.T, expr string, skipGap bool, want []int) {
	t.Helper()
	rule := mustParse(t, expr, Options{Timezone: w.zone, SkipGap: skipGap})
	instantOf := func(step int) time.Time { return time.Unix(w.start+int64(step)*w.unit, 0).UTC() }

	asked := instantOf(0).Add(-time.Second)
	for _, step := range want {
		got := rule.Next(asked)
		if !got.Equal(instantOf(step)) {
			t.Fatalf("%s in %s, SkipGap %v: after %v comes %v, want %v", expr, w.zone, skipGap, asked, got, instantOf(step))
		}
		asked = got
	}
	if end := instantOf(len(w.wall)); rule.Next(asked).Before(end) {
		t.Fatalf("%s in %s, SkipGap %v: after %v comes %v, want nothing before %v", expr, w.zone, skipGap, asked, rule.Next(asked), end)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		if len(want) < 2 {
			break
		}
		i := 1 + random.IntN(len(want)-1)
		between := instantOf(want[i-1]).Add(time.Duration(random.Int64N(int64(instantOf(want[i]).Sub(instantOf(want[i-1]))))))
		if got := rule.Next(between); !got.Equal(instantOf(want[i])) {
			t.Fatalf("%s in %s, SkipGap %v: after %v comes %v, want %v", expr, w.zone, skipGap, between, got, instantOf(want[i]))
		}
	}
}

func TestCronAgreesWithEveryMinuteOfTwoYears(t *testing.T) {
	rules := []string{
		"*/15 * * * *", "5,10,35 * * * *", "30 * * * *", "0 * * * *", "7-52/9 * * * *",
		"30 2 * * *", "0 2 * * *", "0 0 * * *", "30 1 * * *", "59 23 * * *", "15,45 1-3 * * *",
		"0 2,3 * * *", "*/20 2 * * *", "*/15 1 * * *", "0 */2 * * *", "0 */6 * * *", "0 1-23/2 * * *",
		"50-10/5 22-2 * * *", "0 12 * * 1-5", "0 0 1 * *", "30 2 31 * *", "0 0 L * *", "0 2 L-3 * *",
		"30 1 LW * *", "0 9 15W * *", "30 2 * * 0L", "0 0 * * 7#2", "30 2 13 * 5", "30 2 */2 * 0",
		"0 0 30 12 *", "*/30 0-3 * 3,10,11 *", "0 0 29 2 *", "45 2 20-5 OCT-APR FRI-MON",
	}
	places := []struct {
		zone string
		year int
	}{
		{"America/New_York", 2026}, {"Europe/Berlin", 2027}, {"Europe/Dublin", 2028}, {"Africa/Casablanca", 2025},
		{"America/Sao_Paulo", 2017}, {"Australia/Lord_Howe", 2026}, {"Pacific/Apia", 2011}, {"Pacific/Chatham", 2026},
		{"America/St_Johns", 2006}, {"Antarctica/Troll", 2026}, {"Antarctica/Casey", 2020}, {"Pacific/Kwajalein", 1993},
		{"America/Havana", 2098}, {"Asia/Kathmandu", 1985},
	}
	if testing.Short() || raceDetected() {
		places = places[:1]
	}
	for _, p := range places {
		t.Run(p.zone, func(t *testing.T) {
			t.Parallel()
			from := time.Date(p.year, 1, 1, 0, 0, 0, 0, time.UTC)
			w := newCronWalk(t, p.zone, from, from.AddDate(2, 0, 0), time.Minute)
			for _, expr := range rules {
				run, skip := w.occurrences(&referenceCron{strings.Fields(expr)})
				w.compare(t, expr, false, run)
				w.compare(t, expr, true, skip)
			}
		})
	}
}

func TestCronAgreesWithEverySecondAroundChanges(t *testing.T) {
	rules := []string{
		"* * * * * *", "*/7 * * * * *", "0 * * * * *", "30 30 2 * * *", "15,45 * 1-2 * * *", "0-58 59 1 * * *",
		"*/40 */40 2 * * *", "59 59 23 * * *", "0 0 0 * * *", "30 44 0 * * *", "29 44 0 * * *", "*/30 * 0 * * *",
		"0 15 */6 * * *", "10,20,40 * * * * *", "0 5,10,35 * * * *", "1 0 12 30 12 *", "* 40-50 0,2 * * *",
	}
	for _, p := range []struct{ zone, middle string }{
		{"America/New_York", "2026-03-08 07:00"}, {"America/New_York", "2026-11-01 06:00"},
		{"Africa/Monrovia", "1972-01-07 00:44:30"}, {"Pacific/Apia", "2011-12-30 10:00"},
		{"Australia/Lord_Howe", "2026-10-03 15:30"}, {"Europe/Berlin", "2028-12-31 00:00"},
		{"Antarctica/Vostok", "1994-11-01 00:00"},
	} {
		t.Run(p.zone+" "+p.middle, func(t *testing.T) {
			t.Parallel()
			middle := utc(t, p.middle)
			w := newCronWalk(t, p.zone, middle.Add(-20*time.Hour), middle.Add(28*time.Hour), time.Second)
			for _, expr := range rules {
				run, skip := w.occurrences(&referenceCron{strings.Fields(expr)})
				w.compare(t, expr, false, run)
				w.compare(t, expr, true, skip)
			}
		})
	}
}

// raceDetected says whether the race detector is on. It slows the walk down
// tenfold, and has nothing to find in it.
func raceDetected() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// referenceCron answers from the text of an expression each time anew.
type referenceCron struct{ fields []string }

func (r *referenceCron) clockFields() []string { return r.fields[:len(r.fields)-3] }

func (r *referenceCron) interval() bool {
	fields := r.clockFields()
	for i, field := range fields {
		high := 59
		if i == len(fields)-1 {
			high = 23
		}
		whole := true
		for value := range high + 1 {
			whole = whole && listContains(field, value, 0, high)
		}
		if whole || strings.ContainsAny(field, "*/") {
			return true
		}
	}
	return false
}

// matcher returns a function of wall times in units. It remembers the answers for
// days and for times of day, which are few.
func (r *referenceCron) matcher(unit int64) func(int64) bool {
	fields := r.clockFields()
	if len(fields) == 2 {
		fields = append([]string{"0"}, fields...)
	}
	var clock [3][60]bool // second, minute, hour
	for i, high := range []int{59, 59, 23} {
		for value := range high + 1 {
			clock[i][value] = listContains(fields[i], value, 0, high)
		}
	}
	perDay := 24 * 60 * 60 / unit
	times := make([]bool, perDay)
	for i := range times {
		s := i * int(unit)
		times[i] = clock[0][s%60] && clock[1][s/60%60] && clock[2][s/3600]
	}
	today, match := int64(-1<<62), false
	return func(wall int64) bool {
		day := wall / perDay // The walks are after 1970.
		if !times[wall-day*perDay] {
			return false
		}
		if day != today {
			today, match = day, r.matchesDay(time.Unix(day*24*60*60, 0).UTC())
		}
		return match
	}
}

func (r *referenceCron) matchesDay(date time.Time) bool {
	fields := r.fields[len(r.fields)-3:]
	if !listContains(fields[1], int(date.Month()), 1, 12) {
		return false
	}
	var byDay, byWeekday bool
	for item := range strings.SplitSeq(fields[0], ",") {
		byDay = byDay || matchesMonthDay(item, date)
	}
	for item := range strings.SplitSeq(fields[2], ",") {
		byWeekday = byWeekday || matchesWeekday(item, date)
	}
	if strings.HasPrefix(fields[0], "*") || strings.HasPrefix(fields[2], "*") {
		return byDay && byWeekday
	}
	return byDay || byWeekday
}

func lastOf(date time.Time) time.Time {
	return time.Date(date.Year(), date.Month()+1, 0, 0, 0, 0, 0, time.UTC)
}

func matchesMonthDay(item string, date time.Time) bool {
	target := time.Time{}
	before, workday := strings.CutSuffix(item, "W")
	if back, ok := strings.CutPrefix(before, "L"); ok {
		n, _ := strconv.Atoi(strings.TrimPrefix(back, "-"))
		target = lastOf(date).AddDate(0, 0, -n)
	} else if workday {
		n, _ := strconv.Atoi(before)
		target = time.Date(date.Year(), date.Month(), n, 0, 0, 0, 0, time.UTC)
	} else {
		return listContains(item, date.Day(), 1, 31)
	}
	if target.Month() != date.Month() {
		return false
	}
	for _, step := range []int{0, -1, 1, -2, 2} { // the nearest first
		day := target.AddDate(0, 0, step)
		if !workday || day.Month() == target.Month() && day.Weekday()%6 != 0 {
			return day.Equal(date)
		}
	}
	return false
}

func matchesWeekday(item string, date time.Time) bool {
	if day, n, ok := strings.Cut(item, "#"); ok {
		return matchesWeekday(day, date) && strconv.Itoa((date.Day()+6)/7) == n
	}
	if day, ok := strings.CutSuffix(item, "L"); ok {
		return matchesWeekday(day, date) && date.Day()+7 > lastOf(date).Day()
	}
	weekday := int(date.Weekday())
	return listContains(item, weekday, 0, 6) || weekday == 0 && item == "7"
}

// listContains says whether a list names a value between low and high.
func listContains(list string, value, low, high int) bool {
	for item := range strings.SplitSeq(list, ",") {
		bounds, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			step = numberOf(stepText)
		}
		from, to := low, high
		if a, b, ranged := strings.Cut(bounds, "-"); ranged {
			from, to = numberOf(a), numberOf(b)
		} else if bounds != "*" {
			if from = numberOf(bounds); !stepped {
				to = from
			}
		}
		for v, i := from, 0; ; i++ {
			if v == value && i%step == 0 {
				return true
			}
			if v == to {
				break
			}
			if v++; v > high {
				v = low
			}
		}
	}
	return false
}

func numberOf(text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	for i, name := range []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"} {
		if name == text {
			return i
		}
	}
	for month := time.January; month <= time.December; month++ {
		if strings.ToUpper(month.String()[:3]) == text {
			return int(month)
		}
	}
	panic(fmt.Sprintf("the walker cannot read %q", text))
}
