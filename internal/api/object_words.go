package api

import (
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
)

// limit takes how many things are asked for at once, from 1 on; 0 if it does not
// say.
func (o *object) limit(name string, target *int, most int) {
	before := len(o.faults)
	o.whole(name, target, 0)
	if o.has(name) && len(o.faults) == before && (*target < 1 || *target > most) {
		o.fault(o.within+name, "must be from 1 to %d, not %d", most, *target)
	}
}

// oneOf takes a string that is one of a few words, in any case.
func (o *object) oneOf(name string, target *string, words ...string) {
	before := len(o.faults)
	var given string
	o.text(name, &given, "")
	if *target = strings.ToLower(given); *target == "" || len(o.faults) > before || slices.Contains(words, *target) {
		return
	}
	if near := schema.Nearest(*target, words); near != "" {
		o.fault(o.within+name, "must be one of %s; did you mean %q?", strings.Join(words, ", "), near)
	} else {
		o.fault(o.within+name, "must be one of %s", strings.Join(words, ", "))
	}
}

// words takes a string that is part of a name.
func (o *object) words(name string, target *string) {
	o.text(name, target, "")
	if problem := checkWords(*target); problem != "" {
		o.fault(o.within+name, "%s", problem)
	}
}
