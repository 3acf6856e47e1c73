package schedule

import (
	"slices"
	"strings"
	"sync"
)

// places says what people mostly mean who write an abbreviation.
var places = map[string]string{
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

// checkZoneName refuses what is not the name of a zone in the database, and says
// which name may be meant.
func checkZoneName(name string) error {
	_, known := zoneFiles()[name]
	if known && (name == "UTC" || strings.Contains(name, "/")) {
		return nil
	}
	switch {
	case strings.TrimSpace(name) == "":
		return refuseZone(zoneExample, "the name of a time zone is missing")
	case strings.EqualFold(name, "Local"):
		return refuseZone(zoneExample, "%q is another zone on every machine; name the one that is meant", name)
	}
	if place, ok := places[strings.ToUpper(name)]; ok {
		return refuseZone(place, "%q is an abbreviation, not a place; did you mean %q?", name, place)
	}
	if near := nearestZone(name); near != "" {
		return refuseZone(near, "there is no time zone %q; did you mean %q?", clip(name), near)
	}
	if known {
		return refuseZone(zoneExample, "%q is not of the form Area/City", name)
	}
	return refuseZone(zoneExample, "there is no time zone %q; names have the form Area/City", clip(name))
}

// zoneNames lists the names that LoadZone accepts, in order.
var zoneNames = sync.OnceValue(func() []string {
	var names []string
	for name := range zoneFiles() {
		if name == "UTC" || strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

// nearestZone finds the name that differs from a wrong one only in case and
// blanks, or else the first whose city it is, or else nothing. It does not
// propose Etc/GMT+5 for "GMT+5": that lies on the other side of the world.
func nearestZone(name string) string {
	wanted := plain(name)
	var near string
	for _, candidate := range zoneNames() {
		p := plain(candidate)
		if p == wanted {
			return candidate
		}
		if near == "" && strings.HasSuffix(p, "/"+wanted) && !strings.HasPrefix(p, "etc/") {
			near = candidate
		}
	}
	return near
}

// plain reduces a name to lower case without the marks between words.
func plain(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "_", "").Replace(name))
}
