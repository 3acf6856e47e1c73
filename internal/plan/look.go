package plan

import "time"

// dawn is how far back a look goes: no job is older.
var earliest = time.Unix(-1, 0).UTC()

// Between gives the occurrences of the rule from one instant to another, both
// included, oldest first and at most limit of them. More tells whether there are
// others. Neither the number of runs nor what was decided plays a part.
func (p *Policy) Between(from, to time.Time, limit int) (list []time.Time, more bool) {
	for at := p.next(from.Add(-1)); !at.IsZero() && !at.After(to); at = p.next(at) {
		if len(list) >= limit {
			return list, true
		}
		list = append(list, at)
	}
	return list, false
}

// Around tells whether the rule names an instant, and what it names next to it on
// either side; zero: nothing. Neither the number of runs nor what was decided plays
// a part.
func (p *Policy) Around(at time.Time) (is bool, before, after time.Time) {
	return p.next(at.Add(-1)).Equal(at), p.before(at), p.next(at)
}

// before is the latest occurrence before an instant; zero: none. It looks back step
// by step, so that what lies far back is not counted.
func (p *Policy) before(at time.Time) time.Time {
	for back := time.Second; ; back *= 2 {
		from := at.Add(-back)
		over := back < 0 || from.Before(earliest)
		if over {
			from = earliest
		}
		if found, _, _ := newest(p.Rule, from, at.Add(-1), 1); len(found) > 0 {
			return found[0]
		}
		if over {
			return time.Time{}
		}
	}
}
