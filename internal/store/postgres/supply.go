package postgres

import (
	"iter"

	"github.com/belfry-sh/belfry/internal/store"
)

// supply takes new jobs from a sequence in batches. The next batch is produced
// while the one before travels to the server.
type supply struct {
	next   func() (store.NewJob, error, bool)
	end    func()
	coming chan batch // nil: nothing was fetched
	spare  []store.NewJob
}

// batch is some jobs of a sequence, or why there are no more.
type batch struct {
	jobs  []store.NewJob
	last  bool
	err   error
	panic any // of the sequence
}

func newSupply(jobs iter.Seq2[store.NewJob, error]) *supply {
	next, end := iter.Pull2(jobs)
	return &supply{next: next, end: end}
}

// take adds jobs to those that are there until there are n, or enough bytes, or
// all.
func (s *supply) take(jobs []store.NewJob, n int) batch {
	for bytes := 0; len(jobs) < n && bytes < bytesAtATime; {
		job, err, ok := s.next()
		if !ok || err != nil {
			return batch{jobs: jobs, last: !ok, err: err}
		}
		jobs = append(jobs, job)
		bytes += len(job.Job.Payload)
	}
	return batch{jobs: jobs}
}

// fetch begins to take a batch of n in the background.
func (s *supply) fetch(n int) {
	s.coming = make(chan batch, 1)
	go func(spare []store.NewJob, coming chan<- batch) {
		var b batch
		defer func() {
			b.panic = recover()
			coming <- b
		}()
		b = s.take(spare, n)
	}(s.spare, s.coming)
	s.spare = nil
}

// wait gives the batch that was fetched. A panic of the sequence goes on here,
// where somebody may expect it.
func (s *supply) wait() batch {
	b := <-s.coming
	s.coming = nil
	if b.panic != nil {
		panic(b.panic)
	}
	return b
}

// reuse gives a batch's memory to one that is fetched later.
func (s *supply) reuse(jobs []store.NewJob) {
	clear(jobs)
	s.spare = jobs[:0]
}

// stop ends the sequence, once nobody asks it for jobs any more.
func (s *supply) stop() {
	if s.coming != nil {
		<-s.coming
	}
	s.end()
}
