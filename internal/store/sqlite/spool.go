package sqlite

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
)

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
