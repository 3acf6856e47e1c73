package schedule

// Schedules come from strangers, and a few lines of RRULE can name so little, or count
// so much, that finding it takes seconds. A calendar rule therefore has a budget, over
// all its lines: of steps to be read, and of steps to find any of its occurrences. Parse
// refuses one that exceeds it. Steps are counted and not timed: whether a schedule is
// accepted depends on nothing but its text, its options and the zone database.
//
// A schedule that is stored may take twice as many, so that one that was accepted can
// still be read with newer zones, or by a release that counts a little differently.
const (
	maxReadSteps = 100_000 // to read a rule: to find the ends of its COUNTs and its rarest occurrences
	maxNextSteps = 20_000  // of one Next: some 50 years in which every day has to be tried
	storedShare  = 2
)

// budget counts steps, each of which takes 10 to 100 ns. Nil counts nothing: a rule has
// one only while it is read.
type budget struct {
	steps int64 // so far
	most  int64
}

// exceeded is the panic that ends a computation whose budget is spent.
type exceeded struct{}

func (b *budget) spend(steps int64) {
	if b != nil {
		b.add(steps)
	}
}

func (b *budget) add(steps int64) {
	if b.steps += steps; b.steps > b.most {
		panic(exceeded{})
	}
}

// prepareWithin prepares and measures a set, unless that takes too many steps.
func (r *rruleSet) prepareWithin(o Options, readSteps, nextSteps int64) (err error) {
	b := &budget{most: readSteps}
	defer func() {
		if cause := recover(); cause != nil {
			if _, ours := cause.(exceeded); !ours {
				panic(cause)
			}
			err = errTooExpensive
		}
	}()
	if err := r.prepare(o, b); err != nil {
		return err
	}
	r.nextSteps = r.measure(b)
	r.readSteps = b.steps
	r.setBudget(nil)
	return r.checkSteps(readSteps, nextSteps)
}

func (r *rruleSet) setBudget(b *budget) {
	for _, rule := range r.rules {
		rule.rrulePattern.budget = b
	}
	for _, c := range r.clocks {
		c.budget = b
	}
}

// measure returns how many steps it takes at most to find an occurrence. Where it takes
// many the set does not fire for years, so it is asked at the beginning of each year:
// that is right but for the steps of one year. A set that never fires takes none.
func (r *rruleSet) measure(b *budget) (most int64) {
	for t := r.begin - 1; ; {
		before := b.steps
		c := newSetCursor(r)
		next := c.next(t, horizon)
		if next == never && t < r.begin {
			return 0
		}
		if most = max(most, b.steps-before); next == never {
			return most
		}
		year, _, _ := dateOf(floorDiv(next, secondsPerDay))
		t = dayNumber(max(year+1, firstYear), 1, 1)*secondsPerDay - 1
	}
}

func (r *rruleSet) checkSteps(readSteps, nextSteps int64) error {
	if r.readSteps > readSteps || r.nextSteps > nextSteps {
		return errTooExpensive
	}
	return nil
}

var errTooExpensive = errorf(rruleExample, "the schedule takes too long to compute, all its lines together; "+
	"use fewer RRULE lines, UNTIL instead of COUNT, or fewer BY parts beside INTERVAL and BYSETPOS")
