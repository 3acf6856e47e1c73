package schedule

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestZoneVersionIsThatOfTheArchive(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(zoneArchive)))
	if fields := strings.Fields(zoneVersion); len(fields) != 2 || fields[1] != sum {
		t.Fatalf("zoneinfo.version says %q, but the SHA-256 of zoneinfo.zip is %s", zoneVersion, sum)
	}
	if ZoneVersion() != "2025c" {
		t.Fatalf("the release is %q; replace the facts below together with it", ZoneVersion())
	}
	for _, fact := range []struct {
		zone, at, offset, why string
	}{
		{"America/Tijuana", "1970-07-01 00:00", "-07:00", "2025c: summer time in Baja California from 1961 to 1975; -08:00 before"},
		{"America/Vancouver", "2026-12-01 00:00", "-08:00", "later releases of 2026 end the change of clocks"},
	} {
		location, err := LoadZone(fact.zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := utc(t, fact.at).In(location).Format("-07:00"); got != fact.offset {
			t.Errorf("%s is at %s on %s, want %s; %s", fact.zone, got, fact.at, fact.offset, fact.why)
		}
	}
}

func TestZonesComeFromTheBinary(t *testing.T) {
	// Neither a directory without zones nor one with wrong ones makes a difference.
	t.Setenv("ZONEINFO", t.TempDir())
	for _, name := range []string{"Europe/Paris", "UTC", "Etc/UTC", "Etc/GMT+5", "America/Argentina/Buenos_Aires", "US/Eastern", "Asia/Calcutta"} {
		zones.Delete(name)
		location, err := LoadZone(name)
		if err != nil || location.String() != name {
			t.Errorf("%s: %v, %v", name, location, err)
		}
		again, _ := LoadZone(name)
		if again != location {
			t.Errorf("%s is read twice", name)
		}
	}
}

func TestZoneErrors(t *testing.T) {
	for _, c := range []struct{ name, message string }{
		{"", "the name of a time zone is missing"},
		{" ", "the name of a time zone is missing"},
		{"Local", "depends on the machine"},
		{"local", "depends on the machine"},
		{"EST", `"EST" is an abbreviation, not a place; did you mean "America/New_York"?`},
		{"cest", `did you mean "Europe/Paris"?`},
		{"EST5EDT", `did you mean "America/New_York"?`},
		{"GMT", `did you mean "UTC"?`},
		{"utc", `did you mean "UTC"?`},
		{"europe/paris", `there is no time zone "europe/paris"; did you mean "Europe/Paris"?`},
		{"AMERICA/NEW_YORK", `did you mean "America/New_York"?`},
		{"America/New York", `did you mean "America/New_York"?`},
		{"America/NewYork", `did you mean "America/New_York"?`},
		{"Tokyo", `did you mean "Asia/Tokyo"?`},
		{"Buenos Aires", `did you mean "America/Argentina/Buenos_Aires"?`},
		{"Japan", `"Japan" is not of the form Area/City`},
		{"Factory", `"Factory" is not of the form Area/City`},
		{"Europe", `there is no time zone "Europe"`},
		{"Europe/", `there is no time zone "Europe/"`},
		{"/Paris", `there is no time zone "/Paris"`},
		{"../Europe/Paris", `there is no time zone`},
		{"Europe/Paris\x00", `there is no time zone`},
		{"GMT+5", `there is no time zone "GMT+5"; names have`},
		{"+02:00", `there is no time zone "+02:00"`},
		{strings.Repeat("A", 5000), `there is no time zone "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA..."`},
	} {
		location, err := LoadZone(c.name)
		var e *Error
		if location != nil || !errors.As(err, &e) || e.Field != "timezone" || !strings.Contains(e.Message, c.message) {
			t.Errorf("%.40q: %v, %v; want %s", c.name, location, err, c.message)
			continue
		}
		if _, err := LoadZone(e.Example); err != nil {
			t.Errorf("%.40q: the example %q is refused: %v", c.name, e.Example, err)
		}
	}
}

func TestPeriodsAgreeWithPackageTime(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, name := range zoneNames() {
		z, err := loadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		expectOffset := func(at int64) {
			_, want := time.Unix(at, 0).In(z.location).Zone()
			if got := z.periods[z.at(at)].offset; got != int64(want) {
				t.Fatalf("%s at %v: offset %d, want %d", name, time.Unix(at, 0).UTC(), got, want)
			}
		}
		for i, p := range z.periods[1:] {
			expectOffset(p.start - 1)
			expectOffset(p.start)
			before := z.periods[i]
			back := max(before.offset-p.offset, 0)
			if before.offset == p.offset || i > 0 && p.start-before.start <= 2*back {
				t.Fatalf("%s: period %+v follows %+v", name, p, before)
			}
		}
		for range 200 {
			expectOffset(random.Int64N(horizon))
			expectOffset(dayNumber(1970+4*random.IntN(130)+2, 12, 31)*secondsPerDay + random.Int64N(secondsPerDay))
		}
	}
}

func TestZoneLoadingConcurrency(t *testing.T) {
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for _, name := range zoneNames()[:50] {
				zones.Delete(name)
				if _, err := LoadZone(name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}
