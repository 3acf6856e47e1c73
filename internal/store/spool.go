package store

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// NewRow is a new job as it is written, with its spec as text.
type NewRow struct {
	ID                           belfry.ID
	Namespace, Name, Description string
	Tags                         []string
	Revision                     int
	State                        belfry.JobState
	Spec                         string
	Digest                       Digest
	Payload                      []byte
	Queue, Type, Handler         string
	CreatedAt                    time.Time
	Plan                         plan.Plan
}

// What a spool keeps in memory; the rest goes to a file.
const (
	SpoolJobs  = 1000
	SpoolBytes = 4 << 20 // of payload
)

// Spool keeps new jobs until all of them have arrived: whoever produces them must not
// keep a transaction open meanwhile.
type Spool struct {
	dir   string
	specs SpecEncoder
	count int
	head  []*NewRow
	bytes int
	file  *os.File
	buf   *bufio.Writer
	enc   *gob.Encoder
}

// FillSpool takes the jobs of a sequence, whose error it returns as it is. Those that are
// not kept in memory are in a file without a name in the directory.
func FillSpool(ctx context.Context, dir string, jobs iter.Seq2[NewJob, error]) (s *Spool, err error) {
	s = &Spool{dir: dir}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for job, err := range jobs {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return s, err
		}
		if err := s.add(&job); err != nil {
			return s, fmt.Errorf("spool new jobs: %w", err)
		}
	}
	return s, nil
}

func (s *Spool) add(n *NewJob) error {
	job := &n.Job
	spec, err := s.specs.Encode(job.Spec)
	if err != nil {
		return fmt.Errorf("job %s: %w", job.ID, err)
	}
	row := &NewRow{
		ID: job.ID, Namespace: job.Namespace, Name: job.Name, Description: job.Description, Tags: job.Tags, Revision: job.Revision, State: job.State,
		Spec: spec, Digest: DigestOf(job, spec), Payload: job.Payload, Queue: job.Queue, Type: job.Type, Handler: job.Handler, CreatedAt: job.CreatedAt, Plan: n.Plan,
	}
	s.count++
	if s.file == nil && len(s.head) < SpoolJobs && s.bytes < SpoolBytes {
		s.head = append(s.head, row)
		s.bytes += len(row.Payload)
		return nil
	}
	if s.file == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	return s.enc.Encode(row)
}

func (s *Spool) open() error {
	f, err := os.CreateTemp(s.dir, "belfry-new-*")
	if err != nil {
		return err
	}
	s.file, s.buf = f, bufio.NewWriterSize(f, 64<<10)
	s.enc = gob.NewEncoder(s.buf)
	return os.Remove(f.Name()) // it exists as long as it is open
}

// Len is the number of jobs.
func (s *Spool) Len() int { return s.count }

// InMemory reports whether there are few enough of them.
func (s *Spool) InMemory() bool { return s.file == nil }

// Each calls f for the jobs in their order. It may be called again.
func (s *Spool) Each(f func(*NewRow) error) error {
	for i := range s.head {
		if err := f(s.head[i]); err != nil {
			return err
		}
	}
	if s.file == nil {
		return nil
	}
	if err := s.buf.Flush(); err != nil {
		return fmt.Errorf("spool new jobs: %w", err)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("spool new jobs: %w", err)
	}
	dec := gob.NewDecoder(bufio.NewReaderSize(s.file, 64<<10))
	for {
		var row NewRow
		if err := dec.Decode(&row); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the spooled jobs: %w", err)
		}
		if err := f(&row); err != nil {
			return err
		}
	}
}

// Close drops the jobs.
func (s *Spool) Close() {
	if s.file != nil {
		s.file.Close()
	}
}
