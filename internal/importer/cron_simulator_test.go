package importer

import (
	"strings"
	"testing"
	"time"
)

// simulatedLine is a line of a crontab as Debian's cron reads it. It shares nothing with
// the importer: bit sets, five flags, and the loop of a daemon that looks at the clock
// every minute.
type simulatedLine struct {
	minute, hour, day, month, weekday [64]bool
	dayStar, weekdayStar              bool
	wild                              bool // the minute or the hour begins with *
}

var simulatedNicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// simulate parses a line; not ok if cron refuses it, or runs it at the start of the machine.
func simulate(line string) (*simulatedLine, bool) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return nil, false
	}
	if strings.HasPrefix(line, "@") {
		fields, known := simulatedNicknames[words[0]]
		if !known {
			return nil, false
		}
		words = append(strings.Fields(fields), words[1:]...)
	}
	if len(words) < 6 || strings.HasPrefix(words[5], "*") {
		return nil, false
	}
	s := &simulatedLine{
		dayStar: words[2][0] == '*', weekdayStar: words[4][0] == '*',
		wild: words[0][0] == '*' || words[1][0] == '*',
	}
	ok := simulateField(&s.minute, words[0], 0, 59, "") && simulateField(&s.hour, words[1], 0, 23, "") &&
		simulateField(&s.day, words[2], 1, 31, "") && simulateField(&s.month, words[3], 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec") &&
		simulateField(&s.weekday, words[4], 0, 7, "sunmontuewedthufrisat")
	if s.weekday[0] || s.weekday[7] {
		s.weekday[0], s.weekday[7] = true, true
	}
	return s, ok
}

func simulateField(bits *[64]bool, text string, low, high int, names string) bool {
	pos := 0
	peek := func() byte {
		if pos < len(text) {
			return text[pos]
		}
		return 0
	}
	number := func(names string) (int, bool) {
		start := pos
		for c := peek() | 0x20; c >= 'a' && c <= 'z' || peek() >= '0' && peek() <= '9'; c = peek() | 0x20 {
			pos++
		}
		word, n := text[start:pos], 0
		for _, c := range []byte(word) {
			if c < '0' || c > '9' {
				at := strings.Index(names, strings.ToLower(word))
				return at/3 + low, len(word) == 3 && at >= 0 && at%3 == 0
			}
			n = min(n*10+int(c-'0'), 1000)
		}
		return n, word != ""
	}
	for {
		first, last, step, ok := low, high, 1, true
		if peek() == '*' {
			pos++
		} else {
			if first, ok = number(names); !ok {
				return false
			}
			if peek() == '/' {
				return false
			}
			if peek() != '-' {
				if first < low || first > high {
					return false
				}
				bits[first] = true
				if peek() != ',' {
					return true
				}
				pos++
				continue
			}
			pos++
			if last, ok = number(names); !ok {
				return false
			}
		}
		if peek() == '/' {
			pos++
			if step, ok = number(""); !ok || step == 0 {
				return false
			}
		}
		for n := first; n <= last; n += step {
			if n < low || n > high {
				return false
			}
			bits[n] = true
		}
		if peek() != ',' {
			return true
		}
		pos++
	}
}

func (s *simulatedLine) matches(minute, hour, day, month, weekday int) bool {
	if !s.minute[minute] || !s.hour[hour] || !s.month[month] {
		return false
	}
	if s.dayStar || s.weekdayStar {
		return s.day[day] && s.weekday[weekday]
	}
	return s.day[day] || s.weekday[weekday]
}

// simulateYear returns the instants at which cron runs the lines in a year, without repeats
// at one instant. The clock of the machine shows the given zone.
func simulateYear(lines []*simulatedLine, zone *time.Location, year int) [][]int64 {
	runs := make([][]int64, len(lines))
	find := func(at, minute int64, wild, fixed bool) {
		wall := time.Unix(minute*60, 0).UTC()
		_, month, day := wall.Date()
		hour, weekday := wall.Hour(), int(wall.Weekday())
		for i, s := range lines {
			if (s.wild && wild || !s.wild && fixed) && s.matches(int(minute%60), hour, day, int(month), weekday) {
				if n := len(runs[i]); n == 0 || runs[i][n-1] != at {
					runs[i] = append(runs[i], at)
				}
			}
		}
	}
	wallMinute := func(at int64) int64 {
		_, offset := time.Unix(at, 0).In(zone).Zone()
		return (at + int64(offset)) / 60
	}
	begin, end := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	virtual := wallMinute(begin - 60)
	for at := begin; at < end; at += 60 {
		clock := wallMinute(at)
		switch ahead := clock - virtual; {
		case ahead == 1:
			virtual = clock
			find(at, clock, true, true)
		case ahead > 5 && ahead <= 180: // the clock went forward: what it skipped runs now
			find(at, clock, true, false)
			for virtual < clock {
				virtual++
				find(at, virtual, false, true)
			}
		case ahead <= 0 && ahead >= -180: // the clock went back: fixed times have run
			find(at, clock, true, false)
		default:
			virtual = clock
			find(at, clock, true, true)
		}
	}
	return runs
}

// The simulator itself, at the changes of the clock in New York in 2027.
func TestSimulator(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ line, from, want string }{
		{"30 2 14 3 * x", "2027-03-14", "03:00"},
		{"*/15 2 14 3 * x", "2027-03-14", ""},
		{"30 * 14 3 * x", "2027-03-14", "00:30 01:30 03:30 04:30"},
		{"30 1 7 11 * x", "2027-11-07", "01:30"},
		{"30 * 7 11 * x", "2027-11-07", "00:30 01:30 01:30 02:30 03:30"},
	} {
		s, ok := simulate(tt.line)
		if !ok {
			t.Fatalf("%s is refused", tt.line)
		}
		var got []string
		for _, at := range simulateYear([]*simulatedLine{s}, zone, 2027)[0] {
			if wall := time.Unix(at, 0).In(zone); wall.Format(time.DateOnly) == tt.from && wall.Hour() < 4 || wall.Hour() == 4 && len(got) < 4 && tt.from == "2027-03-14" {
				got = append(got, wall.Format("15:04"))
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %s", tt.line, got, tt.want)
		}
	}
}
