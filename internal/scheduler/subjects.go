package scheduler

import (
	"fmt"
	"sync"

	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// subjects caches compiled subjects, which jobs with equal specs share. It is safe for
// concurrent use: to parse a schedule may take milliseconds, so whoever reads plans for
// the loop compiles them first.
type subjects struct {
	defaults plan.Defaults
	mu       sync.Mutex
	compiled map[store.Digest]*compiledSubject
}

// compiledSubject is a subject, or why its spec cannot be read.
type compiledSubject struct {
	subject *plan.Subject
	err     error
	known   bool // the error was returned before
}

// maxSubjects bounds the cache; entries keep the subjects that they use.
const maxSubjects = 100_000

func newSubjects(d plan.Defaults) *subjects {
	return &subjects{defaults: d, compiled: map[store.Digest]*compiledSubject{}}
}

// get returns the subject of a due plan. With an error, first reports whether it is the
// first one about that spec.
func (s *subjects) get(d store.Due) (subject *plan.Subject, first bool, err error) {
	return s.use(s.find(d))
}

func (s *subjects) use(c *compiledSubject) (subject *plan.Subject, first bool, err error) {
	if c.err == nil {
		return c.subject, false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first = !c.known
	c.known = true
	return nil, first, c.err
}

// known returns the compiled subjects of plans, nil for those that are not in the cache.
func (s *subjects) known(plans []store.Planned) []*compiledSubject {
	found := make([]*compiledSubject, len(plans))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range plans {
		found[i] = s.compiled[plans[i].Digest]
	}
	return found
}

// find returns the compiled subject of a due plan, and compiles it if it is new.
func (s *subjects) find(d store.Due) *compiledSubject {
	key := d.Digest()
	s.mu.Lock()
	c := s.compiled[key]
	s.mu.Unlock()
	if c != nil {
		return c
	}
	c = &compiledSubject{}
	var policy *plan.Policy
	if policy, c.err = s.compile(d.Spec); c.err == nil {
		c.subject = &plan.Subject{Namespace: d.Namespace, Name: d.Name, Revision: d.Revision, Policy: policy}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.compiled[key]; earlier != nil {
		return earlier
	}
	if len(s.compiled) >= maxSubjects {
		clear(s.compiled)
	}
	s.compiled[key] = c
	return c
}

// compile reads the text of a spec. A panic of the parser is an error too.
func (s *subjects) compile(text string) (policy *plan.Policy, err error) {
	defer recoverPanic(&err)
	spec, err := store.DecodeSpec(text)
	if err != nil {
		return nil, fmt.Errorf("the spec cannot be read: %w", err)
	}
	return s.defaults.Compile(spec)
}
