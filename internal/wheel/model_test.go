package wheel

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A model is a wheel with no wheel in it: a slice, searched and sorted at every turn.
type model struct {
	hand    time.Time
	entries []modelEntry // in the order in which they were set
}

type modelEntry struct {
	key   int
	at    time.Time
	value int
}

func (m *model) set(key int, at time.Time, value int) {
	m.remove(key)
	m.entries = append(m.entries, modelEntry{key, at, value})
}

func (m *model) index(key int) int {
	return slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.key == key })
}

func (m *model) remove(key int) bool {
	i := m.index(key)
	if i >= 0 {
		m.entries = slices.Delete(m.entries, i, i+1)
	}
	return i >= 0
}

// due returns what an Advance to now has to hand out.
func (m *model) due(now time.Time) []modelEntry {
	due := slices.DeleteFunc(slices.Clone(m.entries), func(e modelEntry) bool { return e.at.After(now) })
	slices.SortStableFunc(due, func(a, b modelEntry) int { return a.at.Compare(b.at) })
	return due
}

func (m *model) earliest() time.Time {
	return slices.MinFunc(m.entries, func(a, b modelEntry) int { return a.at.Compare(b.at) }).at
}

// A machine does the same to a wheel and to a model.
type machine struct {
	wheel  *Wheel[int, int]
	model  model
	values int
}

const modelKeys = 40

// step draws a distance in time: often none or a little, sometimes very much.
func step(t *rapid.T, label string) time.Duration {
	reach := rapid.SampledFrom([]time.Duration{1, 10, ms, 3 * ms, 64 * ms, 65 * ms, 4096 * ms, time.Hour, 30 * 24 * time.Hour, year, 20 * year}).Draw(t, label+" reach")
	return time.Duration(rapid.Int64Range(0, int64(reach)).Draw(t, label))
}

// instant draws an instant after the hand, or sometimes before it, or that of another entry.
func (m *machine) instant(t *rapid.T) time.Time {
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind of instant"); {
	case kind == 0:
		return m.fromHand(-step(t, "before the hand"))
	case kind <= 2 && len(m.model.entries) > 0:
		return rapid.SampledFrom(m.model.entries).Draw(t, "like entry").at
	default:
		return m.fromHand(step(t, "after the hand"))
	}
}

// fromHand keeps to the years in which the wheel tells all instants apart.
func (m *machine) fromHand(d time.Duration) time.Time {
	at := m.model.hand.Add(d)
	switch {
	case at.Year() < 1678:
		return time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC)
	case at.Year() > 2261:
		return time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return at
}

func (m *machine) Set(t *rapid.T) {
	key, at := rapid.IntRange(0, modelKeys).Draw(t, "key"), m.instant(t)
	m.values++
	m.wheel.Set(key, at, m.values)
	m.model.set(key, at, m.values)
}

// Crowd sets more entries close together than Next compares.
func (m *machine) Crowd(t *rapid.T) {
	at := m.instant(t)
	gap := rapid.SampledFrom([]time.Duration{0, 1, 1000, ms}).Draw(t, "gap")
	for i := range nextEffort + 10 {
		m.values++
		m.wheel.Set(modelKeys+1+i, at.Add(time.Duration(i)*gap), m.values)
		m.model.set(modelKeys+1+i, at.Add(time.Duration(i)*gap), m.values)
	}
}

func (m *machine) Remove(t *rapid.T) {
	key := rapid.IntRange(0, modelKeys).Draw(t, "key")
	if got, want := m.wheel.Remove(key), m.model.remove(key); got != want {
		t.Fatalf("Remove(%d) is %t, want %t", key, got, want)
	}
}

func (m *machine) Get(t *rapid.T) {
	key := rapid.IntRange(0, modelKeys).Draw(t, "key")
	value, ok := m.wheel.Get(key)
	want := 0
	i := m.model.index(key)
	if i >= 0 {
		want = m.model.entries[i].value
	}
	if value != want || ok != (i >= 0) {
		t.Fatalf("Get(%d) is %d, %t, want %d, %t", key, value, ok, want, i >= 0)
	}
}

func (m *machine) Trim(t *rapid.T) {
	n, after := rapid.IntRange(0, modelKeys).Draw(t, "entries to trim"), m.fromHand(step(t, "trim after the hand"))
	left := m.model.due(m.fromHand(100 * year)) // all, in order
	before := len(left)
	removed, earliest := m.wheel.Trim(n, after)
	for range removed {
		last := left[len(left)-1].at
		if !last.After(after) || last.Before(earliest) {
			t.Fatalf("Trim to %v removed %d entries from %v on, and the last one is at %v", after, removed, earliest, last)
		}
		left = left[:len(left)-1]
	}
	if len(left) > 0 && removed < n && left[len(left)-1].at.After(after) {
		t.Fatalf("Trim removed %d of %d entries, and one at %v is left", removed, n, left[len(left)-1].at)
	}
	// Which entries of one instant were removed is not specified.
	m.model.entries = slices.DeleteFunc(m.model.entries, func(e modelEntry) bool {
		_, kept := m.wheel.Get(e.key)
		if !kept && e.at.Before(earliest) || kept && len(left) > 0 && e.at.After(left[len(left)-1].at) {
			t.Fatalf("Trim to %v removed %d entries from %v on, and the entry at %v is there: %v", after, removed, earliest, e.at, kept)
		}
		return !kept
	})
	if len(m.model.entries) != before-removed {
		t.Fatalf("Trim returned %d and removed %d", removed, before-len(m.model.entries))
	}
}

func (m *machine) Forward(t *rapid.T) { m.advance(t, m.fromHand(step(t, "forward"))) }

func (m *machine) Back(t *rapid.T) { m.advance(t, m.fromHand(-step(t, "back"))) }

func (m *machine) Follow(t *rapid.T) {
	if next, ok := m.wheel.Next(); ok {
		m.advance(t, next)
	}
}

func (m *machine) advance(t *rapid.T, now time.Time) {
	waiting := m.model.due(now)
	if now.After(m.model.hand) {
		m.model.hand = now
	}
	calls := 0
	got := m.wheel.Advance(now, func(key int, at time.Time, value int) {
		calls++
		if len(waiting) == 0 {
			t.Fatalf("entry %d of %v came at %v, when nothing was left to come", key, at, now)
		}
		if got := (modelEntry{key, at, value}); got.key != waiting[0].key || got.value != waiting[0].value || !got.at.Equal(waiting[0].at) {
			t.Fatalf("at %v came %v, want %v", now, got, waiting[0])
		}
		waiting = waiting[1:]
		m.model.remove(key)
		m.meddle(t, key)
		// Whatever was removed or set anew is no longer waiting for its turn in this Advance.
		waiting = slices.DeleteFunc(waiting, func(e modelEntry) bool { return !slices.Contains(m.model.entries, e) })
	})
	if got != calls || len(waiting) != 0 {
		t.Fatalf("Advance to %v returned %d after %d calls and forgot %v", now, got, calls, waiting)
	}
}

// meddle does what a due may do: it changes the wheel while entries are handed out.
func (m *machine) meddle(t *rapid.T, key int) {
	switch rapid.IntRange(0, 5).Draw(t, "meddle") {
	case 0:
		at := m.instant(t)
		m.values++
		m.wheel.Set(key, at, m.values)
		m.model.set(key, at, m.values)
	case 1:
		m.Set(t)
	case 2:
		m.Remove(t)
	case 3:
		m.Check(t)
	}
}

// Check compares what can be seen of the wheel with the model.
func (m *machine) Check(t *rapid.T) {
	if got, want := m.wheel.Len(), len(m.model.entries); got != want {
		t.Fatalf("Len is %d, want %d", got, want)
	}
	next, ok := m.wheel.Next()
	if ok != (len(m.model.entries) > 0) {
		t.Fatalf("Next is %v, %t with %d entries", next, ok, len(m.model.entries))
	}
	if !ok {
		return
	}
	earliest := m.model.earliest()
	if next.After(earliest) {
		t.Fatalf("Next is %v, later than the earliest entry at %v", next, earliest)
	}
	if !next.After(m.model.hand) && !next.Equal(earliest) {
		t.Fatalf("Next is %v, with the hand at %v and the earliest entry at %v", next, m.model.hand, earliest)
	}
}

func TestWheelBehavesLikeASortedSlice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		start := rapid.SampledFrom([]time.Time{noon, noon.Add(ms - 1), time.Unix(0, 0), time.Unix(0, -1)}).Draw(rt, "start")
		m := &machine{wheel: New[int, int](start), model: model{hand: start}}
		for range rapid.IntRange(0, modelKeys).Draw(rt, "entries at first") {
			m.Set(rt)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"set":     m.Set,
			"crowd":   m.Crowd,
			"remove":  m.Remove,
			"get":     m.Get,
			"trim":    m.Trim,
			"forward": m.Forward,
			"back":    m.Back,
			"follow":  m.Follow,
			"":        func(rt *rapid.T) { m.Check(rt); check(rt, m.wheel) },
		})
		check(rt, m.wheel)
	})
}
