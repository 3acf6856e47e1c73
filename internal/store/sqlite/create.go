package sqlite

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
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	// A job whose id exists was created by an earlier call whose reply was lost; it
	// may be archived by now.
	insertJob = `INSERT INTO jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at,
  tags, queue, type, handler)
SELECT ?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM ended WHERE id = ?1) ON CONFLICT (id) DO NOTHING`

	insertPlan = `INSERT INTO plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version, one_off)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	var specs store.SpecEncoder
	pending := &spool{dir: s.dir}
	defer pending.close()
	for job, err := range jobs {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		row, err := rowOf(&job, &specs)
		if err == nil {
			err = pending.add(row)
		}
		if err != nil {
			return failed("create jobs", err)
		}
	}
	return s.writeRequest(ctx, "create jobs", r, func(t *tx) error {
		t.changes.many = pending.file != nil
		t.changes.plans = t.changes.many
		return pending.each(t.insertJob)
	})
}

// newRow is a new job as it is written, with its spec as text.
type newRow struct {
	ID                   belfry.ID
	Namespace, Name      string
	Tags                 []string
	Revision             int
	State                belfry.JobState
	Spec                 string
	Payload              []byte
	Queue, Type, Handler string
	CreatedAt            time.Time
	Plan                 plan.Plan
}

func (t *tx) insertJob(r *newRow) error {
	p := &r.Plan
	inserted, err := t.exec(insertJob, r.ID[:], int64(p.Shard), r.Namespace, nullText(r.Name), int64(r.Revision), string(r.State),
		r.Spec, nullText(r.Payload), micro(r.CreatedAt), micro(r.CreatedAt), tagsJSON(r.Tags), r.Queue, r.Type, r.Handler)
	if err != nil {
		return nameTaken(err, r.Name)
	}
	if inserted == 0 {
		return nil
	}
	if !t.changes.many {
		t.changes.planWritten(r.ID)
	}
	return t.run(insertPlan, p.JobID[:], int64(p.Shard), p.Version, nullTime(p.NextAt), nullTime(p.NominalAt), nullTime(p.FiredFor), p.RunsMade,
		p.ZoneVersion, p.Once)
}

func rowOf(n *store.NewJob, specs *store.SpecEncoder) (*newRow, error) {
	job := &n.Job
	spec, err := specs.Encode(job.Spec)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", job.ID, err)
	}
	return &newRow{
		ID: job.ID, Namespace: job.Namespace, Name: job.Name, Tags: job.Tags, Revision: job.Revision, State: job.State, Spec: spec,
		Payload: job.Payload, Queue: job.Queue, Type: job.Type, Handler: job.Handler, CreatedAt: job.CreatedAt, Plan: n.Plan,
	}, nil
}

// What a spool keeps in memory; the rest goes to a file.
const (
	spoolJobs  = 1000
	spoolBytes = 4 << 20 // of payload
)

// spool keeps new jobs until all of them have arrived: there is one writer, which a
// slow import must not block.
type spool struct {
	dir   string
	head  []*newRow
	bytes int
	file  *os.File
	buf   *bufio.Writer
	enc   *gob.Encoder
}

func (s *spool) add(job *newRow) error {
	if s.file == nil && len(s.head) < spoolJobs && s.bytes < spoolBytes {
		s.head = append(s.head, job)
		s.bytes += len(job.Payload)
		return nil
	}
	if s.file == nil {
		if err := s.open(); err != nil {
			return fmt.Errorf("spool new jobs: %w", err)
		}
	}
	return s.enc.Encode(job)
}

func (s *spool) open() error {
	f, err := os.CreateTemp(s.dir, "belfry-new-*")
	if err != nil {
		return err
	}
	s.file, s.buf = f, bufio.NewWriterSize(f, 64<<10)
	s.enc = gob.NewEncoder(s.buf)
	return os.Remove(f.Name()) // it exists as long as it is open
}

// each calls f for the jobs in the order of add. It is called once.
func (s *spool) each(f func(*newRow) error) error {
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
		var job newRow
		if err := dec.Decode(&job); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the spooled jobs: %w", err)
		}
		if err := f(&job); err != nil {
			return err
		}
	}
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
	}
}
