package store

import (
	"bufio"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"reflect"
	"sync"
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
	SpoolJobs  = 20_000
	SpoolBytes = 4 << 20 // of payload
)

// Spool keeps new jobs until all of them have arrived: whoever produces them must not
// keep a transaction open meanwhile.
type Spool struct {
	dir   string
	specs SpecEncoder
	count int
	usage map[string]belfry.Usage
	head  [][]NewRow // in memory: blocks of 1, 2, 4 and so on, so that none is copied
	bytes int
	file  *os.File
	buf   *bufio.Writer
	enc   *gob.Encoder
}

// FillSpool takes the jobs of a sequence, whose error it returns as it is. Those that are
// not kept in memory are in a file without a name in the directory.
func FillSpool(ctx context.Context, dir string, jobs iter.Seq2[NewJob, error]) (s *Spool, err error) {
	s = &Spool{dir: dir, usage: map[string]belfry.Usage{}}
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
	s.count++
	inMemory := s.file == nil && s.count <= SpoolJobs && s.bytes < SpoolBytes
	row := s.newRow(inMemory)
	*row = NewRow{
		ID: job.ID, Namespace: job.Namespace, Name: job.Name, Description: job.Description, Tags: job.Tags, Revision: job.Revision, State: job.State,
		Spec: spec, Digest: DigestOf(job, spec), Payload: job.Payload, Queue: job.Queue, Type: job.Type, Handler: job.Handler, CreatedAt: job.CreatedAt, Plan: n.Plan,
	}
	u := s.usage[job.Namespace]
	s.usage[job.Namespace] = belfry.Usage{Jobs: u.Jobs + 1, StoredBytes: u.StoredBytes + int64(len(spec)+len(job.Payload))}
	if inMemory {
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

// newRow is the memory of a row: the next in the blocks, or its own.
func (s *Spool) newRow(inBlocks bool) *NewRow {
	if !inBlocks {
		return new(NewRow)
	}
	last := len(s.head) - 1
	if last < 0 || len(s.head[last]) == cap(s.head[last]) {
		last++
		s.head = append(s.head, make([]NewRow, 0, 1<<min(last, 8)))
	}
	s.head[last] = append(s.head[last], NewRow{})
	return &s.head[last][len(s.head[last])-1]
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

// Usage is what the jobs add to the usage of their namespaces.
func (s *Spool) Usage() map[string]belfry.Usage { return s.usage }

// InMemory reports whether there are few enough of them.
func (s *Spool) InMemory() bool { return s.file == nil }

// Each calls f for the jobs in their order. It may be called again.
func (s *Spool) Each(f func(*NewRow) error) error {
	for _, block := range s.head {
		for i := range block {
			if err := f(&block[i]); err != nil {
				return err
			}
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

// storedBase is what a field has that a stored spec does not mention. Most jobs set few
// fields, so that a job takes less than half of the space. It must never change, whatever
// the defaults of new jobs become: that would change stored jobs.
var storedBase = belfry.Spec{
	Type:             belfry.TypeHTTP,
	MissedWindow:     belfry.MissedRunOnce,
	Queue:            "default",
	Priority:         "normal",
	Overlap:          belfry.OverlapSkip,
	TimeoutSeconds:   60,
	MaxRetries:       belfry.Some(3),
	RetryBackoff:     belfry.BackoffExponential,
	RetryBaseSeconds: belfry.Some(5.0),
	RetryCapSeconds:  belfry.Some(1800.0),
	RetryJitter:      belfry.Some(0.25),
}

// DecodeSpec decodes the stored text of a spec.
func DecodeSpec(text string) (belfry.Spec, error) {
	spec := storedBase
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return belfry.Spec{}, fmt.Errorf("decode a spec: %w", err)
	}
	return spec, nil
}

// withoutBase is a spec without the fields that DecodeSpec adds.
func withoutBase(spec belfry.Spec) belfry.Spec {
	v, base := reflect.ValueOf(&spec).Elem(), reflect.ValueOf(&storedBase).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Interface() == base.Field(i).Interface() {
			f.SetZero()
		}
	}
	return spec
}

// Specs caches decoded specs by their text: there are far fewer of them than jobs. The zero value is ready for use.
type Specs struct {
	mu      sync.RWMutex
	decoded map[string]belfry.Spec
}

// maxSpecs bounds the memory; a fleet with more distinct specs decodes again.
const maxSpecs = 10_000

// Decode decodes the stored text of a spec.
func (c *Specs) Decode(text string) (belfry.Spec, error) {
	c.mu.RLock()
	spec, ok := c.decoded[text]
	c.mu.RUnlock()
	if ok {
		return spec, nil
	}
	spec, err := DecodeSpec(text)
	if err != nil {
		return spec, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decoded == nil || len(c.decoded) >= maxSpecs {
		c.decoded = map[string]belfry.Spec{}
	}
	c.decoded[text] = spec
	return spec, nil
}

// OrZero decodes the spec of a run. A text that cannot be decoded must not stop
// other runs: its own run has no retries.
func (c *Specs) OrZero(text string) belfry.Spec {
	spec, err := c.Decode(text)
	if err != nil {
		return belfry.Spec{}
	}
	return spec
}

// SpecEncoder encodes specs as they are stored. Jobs that are created together often
// have the same specs, each of which is encoded once. The zero value is ready for use.
type SpecEncoder struct{ texts map[belfry.Spec]string }

// Encode returns the text that DecodeSpec reads. A field that is unset and has a default
// is read back as the default.
func (e *SpecEncoder) Encode(spec belfry.Spec) (string, error) {
	if text, ok := e.texts[spec]; ok {
		return text, nil
	}
	text, err := json.Marshal(withoutBase(spec))
	if err != nil {
		return "", fmt.Errorf("encode a spec: %w", err)
	}
	if e.texts == nil || len(e.texts) >= maxSpecs {
		e.texts = map[belfry.Spec]string{}
	}
	e.texts[spec] = string(text)
	return string(text), nil
}
