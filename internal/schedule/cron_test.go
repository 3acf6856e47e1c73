package schedule

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestCronDayFields(t *testing.T) {
	const after = "2025-12-31 23:59:59" // 2026 begins on a Thursday
	for _, c := range []struct{ expr, want string }{
		{"0 0 L * *", "2026-01-31 00:00, 2026-02-28 00:00, 2026-03-31 00:00"},
		{"0 0 l-0 * *", "2026-01-31 00:00, 2026-02-28 00:00"},
		{"0 0 L-3 * *", "2026-01-28 00:00, 2026-02-25 00:00"},
		{"0 0 L-30 * *", "2026-01-01 00:00, 2026-03-01 00:00, 2026-05-01 00:00"},
		{"0 0 L-28 2 *", "2028-02-01 00:00, 2032-02-01 00:00"},
		{"0 0 LW * *", "2026-01-30 00:00, 2026-02-27 00:00, 2026-03-31 00:00"},
		{"0 0 LW 5 *", "2026-05-29 00:00"},                     // the 31st is a Sunday
		{"0 0 L-1W * *", "2026-01-30 00:00, 2026-02-27 00:00"}, // the 27th is a Friday
		{"0 0 L-2W 5 *", "2026-05-29 00:00"},
		{"0 0 1W 2 *", "2026-02-02 00:00"},  // the 1st is a Sunday
		{"0 0 1W 8 *", "2026-08-03 00:00"},  // the 1st is a Saturday
		{"0 0 31W 5 *", "2026-05-29 00:00"}, // the 31st is a Sunday
		{"0 0 15W 8 *", "2026-08-14 00:00"}, // the 15th is a Saturday
		{"0 0 15W 2,3 *", "2026-02-16 00:00, 2026-03-16 00:00"},
		{"0 0 31W 1-4 *", "2026-01-30 00:00, 2026-03-31 00:00, 2027-01-29 00:00"},
		{"0 0 7,l,15w 1 *", "2026-01-07 00:00, 2026-01-15 00:00, 2026-01-31 00:00"},
		{"0 0 * * 5L", "2026-01-30 00:00, 2026-02-27 00:00"},
		{"0 0 * * fril,MON#1", "2026-01-05 00:00, 2026-01-30 00:00, 2026-02-02 00:00"},
		{"0 0 * * 7#1", "2026-01-04 00:00, 2026-02-01 00:00"},
		{"0 0 * * 7L", "2026-01-25 00:00, 2026-02-22 00:00"},
		{"0 0 * * thu#5", "2026-01-29 00:00, 2026-04-30 00:00"},
		{"0 0 * * 0", "2026-01-04 00:00, 2026-01-11 00:00"},
		{"0 0 * * 7", "2026-01-04 00:00, 2026-01-11 00:00"},
		{"0 0 * * 5-7", "2026-01-02 00:00, 2026-01-03 00:00, 2026-01-04 00:00, 2026-01-09 00:00"},
		{"0 0 * * 7-2", "2026-01-04 00:00, 2026-01-05 00:00, 2026-01-06 00:00, 2026-01-11 00:00"},
		{"0 0 * * FRI-MON", "2026-01-02 00:00, 2026-01-03 00:00, 2026-01-04 00:00, 2026-01-05 00:00, 2026-01-09 00:00"},
		{"0 0 * * MON/2", "2026-01-02 00:00, 2026-01-05 00:00, 2026-01-07 00:00"},
		{"0 0 13 * 5", "2026-01-02 00:00, 2026-01-09 00:00, 2026-01-13 00:00"},
		{"0 0 13 * ?", "2026-01-13 00:00, 2026-02-13 00:00"},
		{"0 0 ? * 5", "2026-01-02 00:00, 2026-01-09 00:00"},
		{"0 0 */2 * 5", "2026-01-09 00:00, 2026-01-23 00:00"},
		{"0 0 13 * */5", "2026-02-13 00:00, 2026-03-13 00:00, 2026-09-13 00:00"},
		{"0 0 1-31/2 * 5", "2026-01-01 00:00, 2026-01-02 00:00, 2026-01-03 00:00"},
		{"0 0 30-2 1 *", "2026-01-01 00:00, 2026-01-02 00:00, 2026-01-30 00:00, 2026-01-31 00:00, 2027-01-01 00:00"},
		{"0 0 29 2 *", "2028-02-29 00:00, 2032-02-29 00:00"},
		{"0 0 * 2 TUE#5", "2028-02-29 00:00, 2056-02-29 00:00"},
	} {
		expectChain(t, c.expr, Options{}, after, c.want, "")
	}
}

func TestCronTimeFields(t *testing.T) {
	const after = "2026-06-30 22:58:30"
	for _, c := range []struct{ expr, want string }{
		{"@hourly", "2026-06-30 23:00, 2026-07-01 00:00"},
		{"@daily", "2026-07-01 00:00, 2026-07-02 00:00"},
		{" @Midnight\t", "2026-07-01 00:00, 2026-07-02 00:00"},
		{"@WEEKLY", "2026-07-05 00:00, 2026-07-12 00:00"},
		{"@monthly", "2026-07-01 00:00, 2026-08-01 00:00"},
		{"@yearly", "2027-01-01 00:00, 2028-01-01 00:00"},
		{"@annually", "2027-01-01 00:00, 2028-01-01 00:00"},
		{"\t 5   4 * *  * ", "2026-07-01 04:05"},
		{"05 004 * * *", "2026-07-01 04:05"},
		{"22-2/2 22-2/3 * * *", "2026-07-01 01:00, 01:02, 01:22"},
		{"50/4 * * * *", "2026-06-30 23:50, 23:54, 23:58, 2026-07-01 00:50"},
		{"15-19/5 * * * *", "2026-06-30 23:15, 2026-07-01 00:15"},
		{"*/90 * * * *", "2026-06-30 23:00, 2026-07-01 00:00"},
		{"59-58 23 * * *", "2026-06-30 23:00, 23:01"},
		{"*,5 0 * * *", "2026-07-01 00:00, 00:01"},
		{"? ? ? ? ?", "2026-06-30 22:59, 23:00"},
		{"0 12 1 nov-FEB/2 *", "2026-11-01 12:00, 2027-01-01 12:00, 2027-11-01 12:00"},
		{"*/20 * * * * *", "2026-06-30 22:58:40, 22:59:00"},
		{"30 58 22 30 6 ?", "2027-06-30 22:58:30"},
		{"31 58 22 30 6 ? 2026", "2026-06-30 22:58:31, never"},
		{"0 0 0 1 1 * 2027-2033/3,2031", "2027-01-01 00:00, 2030-01-01 00:00, 2031-01-01 00:00, 2033-01-01 00:00, never"},
		{"0 0 0 29 2 * 2095/3", "2104-02-29 00:00"},
		{"0 0 0 1 1 * *", "2027-01-01 00:00, 2028-01-01 00:00"},
		{"0 0 0 1 1 * 1970/430", "2400-01-01 00:00, never"},
	} {
		expectChain(t, c.expr, Options{}, after, c.want, "")
	}
}

func TestCronZonePrefix(t *testing.T) {
	for _, text := range []string{"TZ=Asia/Tokyo 0 9 * * *", " CRON_TZ=Asia/Tokyo\t0 9 * * *", "CRON_TZ=Asia/Tokyo 0 9 * * *"} {
		expectChain(t, text, Options{}, "2026-01-01 00:00", "2026-01-02 00:00", "")
		expectChain(t, text, Options{Timezone: "Asia/Tokyo"}, "2026-01-01 00:00", "2026-01-02 00:00", "")
	}
}

func TestCronNextIsWholeSeconds(t *testing.T) {
	rule := mustParse(t, "* * * * * *", Options{})
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ after, want time.Time }{
		{at.Add(-time.Nanosecond), at},
		{at, at.Add(time.Second)},
		{at.Add(time.Nanosecond), at.Add(time.Second)},
		{at.In(time.FixedZone("", 3600)), at.Add(time.Second)},
	} {
		if got := rule.Next(c.after); !got.Equal(c.want) {
			t.Errorf("after %v comes %v, want %v", c.after, got, c.want)
		}
	}
}

func TestCronNextFarAhead(t *testing.T) {
	rule := mustParse(t, "0 0 * * *", Options{Timezone: "Asia/Tokyo"})
	for _, c := range []struct{ after, want string }{
		{"0001-01-01 00:00", "0001-01-01 14:41:01"}, // before the zone had a standard time
		{"1900-01-01 00:00", "1900-01-01 15:00"},
		{"2499-12-31 14:59", "2499-12-31 15:00"},
		{"2499-12-31 15:00", "never"},
		{"9999-12-31 23:59", "never"},
	} {
		if got := rule.Next(utc(t, c.after)); !got.Equal(instants(t, c.want)[0]) {
			t.Errorf("after %s comes %v, want %s", c.after, got, c.want)
		}
	}
	for _, after := range []time.Time{time.Unix(-1<<62, 0), time.Unix(1<<62, 0), {}} {
		if got := rule.Next(after); !got.IsZero() && !got.After(after) {
			t.Errorf("after %v comes %v", after, got)
		}
	}
}

func TestDateArithmeticAgreesWithPackageTime(t *testing.T) {
	date := time.Date(-401, 12, 1, 0, 0, 0, 0, time.UTC)
	for n := date.Unix() / secondsPerDay; date.Year() < 2501; n++ {
		year, month, day := dateOf(n)
		if year != date.Year() || month != int(date.Month()) || day != date.Day() || weekdayOf(n) != int(date.Weekday()) {
			t.Fatalf("day %d is %d-%d-%d, weekday %d; want %v", n, year, month, day, weekdayOf(n), date)
		}
		if back := dayNumber(year, month, day); back != n {
			t.Fatalf("day number of %v is %d, want %d", date, back, n)
		}
		tomorrow := date.AddDate(0, 0, 1)
		if last := tomorrow.Day() == 1; last && monthLength(year, month) != day {
			t.Fatalf("length of %d-%d is %d, want %d", year, month, monthLength(year, month), day)
		}
		date = tomorrow
	}
}

// TestNextIsStrictlyLater asks rules of every form from everywhere: just before,
// at and after occurrences and changes of the clock, and from the ends of time.
func TestNextIsStrictlyLater(t *testing.T) {
	random := rand.New(rand.NewPCG(23, 24))
	for range 3000 {
		rule, text, o := randomRule(t, random)
		asked := []time.Time{{}, time.Unix(-1<<62, 0), time.Unix(1<<62, 999_999_999), time.Unix(horizon-1, 0), time.Unix(horizon, 0), o.Start}
		z, _ := loadZone(o.Timezone)
		for range 10 {
			p := z.periods[random.IntN(len(z.periods))]
			asked = append(asked, time.Unix(p.start, 0), time.Unix(p.start-1, 999_999_999), time.Unix(random.Int64N(horizon), random.Int64N(1e9)))
		}
		for _, after := range asked {
			next := rule.Next(after)
			if next.IsZero() {
				continue
			}
			if !next.After(after) || next.Location() != time.UTC || next.Unix() >= horizon {
				t.Fatalf("%s %+v: after %v comes %v", text, o, after, next)
			}
			// Nothing lies between: the answer is the same from anywhere in between.
			between := after
			if gap := next.Sub(after); gap > 1 {
				between = after.Add(time.Duration(random.Int64N(int64(gap))))
			}
			for _, at := range []time.Time{between, next.Add(-1)} {
				if again := rule.Next(at); !again.Equal(next) {
					t.Fatalf("%s %+v: after %v comes %v, but after %v comes %v", text, o, after, next, at, again)
				}
			}
			if later := rule.Next(next); !later.IsZero() && !later.After(next) {
				t.Fatalf("%s %+v: after %v comes %v", text, o, next, later)
			}
		}
	}
}
