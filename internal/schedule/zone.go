package schedule

import (
	"archive/zip"
	"cmp"
	_ "embed"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// The zone database is the compiled form of the IANA time zone database, which
// is in the public domain, as the Go distribution packs it. It is replaced
// together with zoneinfo.version, which holds its release and its SHA-256.

//go:embed zoneinfo.zip
var zoneArchive string

//go:embed zoneinfo.version
var zoneVersion string

// ZoneVersion returns the release of the zone database in this binary, such as
// "2025c". Nodes of different releases may disagree about the future.
func ZoneVersion() string {
	release, _, _ := strings.Cut(zoneVersion, " ")
	return release
}

// LoadZone returns the zone of an IANA name from the database in this binary, never
// from the machine's files. Apart from "UTC" a name has the form Area/City:
// abbreviations such as "EST" are refused because they have no clock changes, and ""
// and "Local" because they depend on the machine.
func LoadZone(name string) (*time.Location, error) {
	z, err := loadZone(name)
	if err != nil {
		return nil, err
	}
	return z.location, nil
}

// zone is the history and the known future of the offset of one place.
type zone struct {
	location *time.Location
	periods  []period // in order of time; the first has no beginning, the last no end
}

// period is a stretch of time with one offset: wall time = instant + offset. It
// is longer than the clock is ever set back, so that no wall time has more than
// two instants.
type period struct {
	start  int64 // its first instant
	offset int64
}

// maxOffset is more than any clock is away from UTC.
const maxOffset = 2 * secondsPerDay

// zones holds the zones in use; a name is read from the archive once.
var zones sync.Map // string → *zone

func loadZone(name string) (*zone, error) {
	if z, ok := zones.Load(name); ok {
		return z.(*zone), nil
	}
	if err := checkZoneName(name); err != nil {
		return nil, err
	}
	location := time.UTC
	if name != "UTC" {
		var data []byte
		file, err := zoneFiles()[name].Open()
		if err == nil {
			defer file.Close()
			data, err = io.ReadAll(file)
		}
		if err == nil {
			location, err = time.LoadLocationFromTZData(name, data)
		}
		if err != nil {
			return nil, zoneErrorf(zoneExample, "the data of %q cannot be read: %v", name, err)
		}
	}
	z, _ := zones.LoadOrStore(name, &zone{location, periodsOf(location)})
	return z.(*zone), nil
}

// zoneOrUTC returns the zone of a name that may be empty, or panics with an Error.
func zoneOrUTC(name string) *zone {
	z, err := loadZone(cmp.Or(name, "UTC"))
	if err != nil {
		panic(err)
	}
	return z
}

var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	files := make(map[string]*zip.File)
	archive, err := zip.NewReader(strings.NewReader(zoneArchive), int64(len(zoneArchive)))
	if err != nil {
		return files // Unreachable for a sound build; every name is then unknown.
	}
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, "/") {
			files[f.Name] = f
		}
	}
	return files
})

// periodsOf lists the periods of a location up to the horizon. It asks the
// location for boundaries but believes only offsets: ZoneBounds also reports
// year ends at which nothing changes, and on the last day of a leap year an end
// that is already over.
func periodsOf(location *time.Location) []period {
	offsetAt := func(t int64) int64 {
		_, offset := time.Unix(t, 0).In(location).Zone()
		return int64(offset)
	}
	t := firstInstant
	last := period{start: math.MinInt64, offset: offsetAt(t)}
	list := []period{last}
	for t < horizon+2*secondsPerDay {
		_, end := time.Unix(t, 0).In(location).ZoneBounds()
		if end.IsZero() {
			break
		}
		next := end.Unix()
		if next <= t {
			next = t + secondsPerDay
		}
		if offset := offsetAt(next); offset != last.offset {
			last = period{start: next, offset: offset}
			list = append(list, last)
		}
		t = next
	}
	return list
}

// at returns the index of the period that an instant belongs to.
func (z *zone) at(t int64) int {
	low, high := 0, len(z.periods)
	for low+1 < high {
		if mid := int(uint(low+high) / 2); z.periods[mid].start <= t {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

func (z *zone) wallAt(t int64) int64 { return t + z.periods[z.at(t)].offset }

// resolve returns the first instant at which the clock shows a wall time. If
// the clock skips it, that is the instant at which the skipped stretch ends, and
// skipped is true.
func (z *zone) resolve(wall int64) (t int64, skipped bool) {
	for i := z.at(wall - maxOffset); ; i++ {
		p := &z.periods[i]
		if i > 0 && wall < p.start+p.offset {
			return p.start, true
		}
		if i+1 == len(z.periods) || wall < z.periods[i+1].start+p.offset {
			return wall - p.offset, false
		}
	}
}

// otherInstant returns the other instant at which the clock shows what it shows at the
// given one, and whether that is later, or never.
func (z *zone) otherInstant(t int64) (other int64, later bool) {
	i := z.at(t)
	p := z.periods[i]
	wall := t + p.offset
	if i+1 < len(z.periods) {
		if next := z.periods[i+1]; wall >= next.start+next.offset {
			return wall - next.offset, true
		}
	}
	if i > 0 && wall < p.start+z.periods[i-1].offset {
		return wall - z.periods[i-1].offset, false
	}
	return never, false
}

// gap returns the wall times that the clock skips at the beginning of a period:
// from the first to before the second. Elsewhere the second is not after the
// first; then the clock repeats what lies between them, or nothing.
func (z *zone) gap(i int) (from, end int64) {
	if i == 0 {
		return 0, 0
	}
	p := z.periods[i]
	return p.start + z.periods[i-1].offset, p.start + p.offset
}

// zoneAbbreviations has the zone that an abbreviation mostly means.
var zoneAbbreviations = map[string]string{
	"EST": "America/New_York", "EDT": "America/New_York", "EST5EDT": "America/New_York",
	"CST": "America/Chicago", "CDT": "America/Chicago", "CST6CDT": "America/Chicago",
	"MST": "America/Denver", "MDT": "America/Denver", "MST7MDT": "America/Denver",
	"PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "PST8PDT": "America/Los_Angeles",
	"HST": "Pacific/Honolulu", "AKST": "America/Anchorage", "AKDT": "America/Anchorage",
	"BST": "Europe/London", "WET": "Europe/Lisbon", "WEST": "Europe/Lisbon",
	"CET": "Europe/Paris", "CEST": "Europe/Paris", "MET": "Europe/Paris",
	"EET": "Europe/Athens", "EEST": "Europe/Athens", "MSK": "Europe/Moscow",
	"IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "KST": "Asia/Seoul",
	"AEST": "Australia/Sydney", "AEDT": "Australia/Sydney", "NZST": "Pacific/Auckland",
	"GMT": "UTC", "UCT": "UTC", "Z": "UTC", "ZULU": "UTC", "UNIVERSAL": "UTC",
	"GREENWICH": "UTC", "GMT0": "UTC", "GMT+0": "UTC", "GMT-0": "UTC",
}

func checkZoneName(name string) error {
	_, known := zoneFiles()[name]
	if known && (name == "UTC" || strings.Contains(name, "/")) {
		return nil
	}
	switch {
	case strings.TrimSpace(name) == "":
		return zoneErrorf(zoneExample, "the name of a time zone is missing")
	case strings.EqualFold(name, "Local"):
		return zoneErrorf(zoneExample, "%q depends on the machine; use an IANA name", name)
	}
	if place, ok := zoneAbbreviations[strings.ToUpper(name)]; ok {
		return zoneErrorf(place, "%q is an abbreviation, not a place; did you mean %q?", name, place)
	}
	if near := nearestZone(name); near != "" {
		return zoneErrorf(near, "there is no time zone %q; did you mean %q?", name, near)
	}
	if known {
		return zoneErrorf(zoneExample, "%q is not of the form Area/City", name)
	}
	return zoneErrorf(zoneExample, "there is no time zone %q; names have the form Area/City", name)
}

// zoneNames lists the names that LoadZone accepts, in order.
var zoneNames = sync.OnceValue(func() []string {
	names := slices.Sorted(maps.Keys(zoneFiles()))
	return slices.DeleteFunc(names, func(name string) bool { return name != "UTC" && !strings.Contains(name, "/") })
})

// nearestZone finds the name that differs from a wrong one only in case and
// blanks, or else the first whose city it is, or else nothing. It does not
// propose Etc/GMT+5 for "GMT+5": that lies on the other side of the world.
func nearestZone(name string) string {
	normalized := normalizeZoneName(name)
	var near string
	for _, candidate := range zoneNames() {
		p := normalizeZoneName(candidate)
		if p == normalized {
			return candidate
		}
		if near == "" && strings.HasSuffix(p, "/"+normalized) && !strings.HasPrefix(p, "etc/") {
			near = candidate
		}
	}
	return near
}

func normalizeZoneName(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "_", "").Replace(name))
}
