package api

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	maxBulk   = 64 << 20 // bytes of a body of many jobs
	maxSpools = 8        // that may be there at once

	// A body must bring so many bytes within so much time, again and again.
	paceBytes  = 64 << 10
	paceWithin = 10 * time.Second
	bulkWithin = 5 * time.Minute // the whole of it
)

// spool is a body that came to its end: its first part in memory, the rest in a
// file without a name.
type spool struct {
	head []byte
	file *os.File // nil: there is no more
	rest int64    // bytes in it
	sum  [sha256.Size]byte
	free func()
}

// receive takes in the whole body of a request before anything else is done with
// it: a slow client must hold nothing that others wait for. Only one that has sent
// something worthwhile takes one of the few places.
func (a *api) receive(w http.ResponseWriter, r *http.Request) (*spool, error) {
	if r.ContentLength > maxBulk {
		return nil, tooLarge(maxBulk)
	}
	body := &paced{body: r.Body, connection: http.NewResponseController(w), end: time.Now().Add(bulkWithin)}
	body.connection.SetWriteDeadline(body.end.Add(bulkTimeout)) // Where there is none, there is no timeout either.
	body.renew()
	hash := sha256.New()
	all := io.TeeReader(body, hash)
	head, err := io.ReadAll(io.LimitReader(all, paceBytes))
	if err != nil {
		return nil, readError(err)
	}
	select {
	case a.spools <- struct{}{}:
	default:
		return nil, &httpError{code: belfry.Unavailable, detail: "too many imports at the same time; try again", header: map[string]string{"Retry-After": "2", "Connection": "close"}}
	}
	s := &spool{head: head, free: func() { <-a.spools }}
	if len(head) == paceBytes {
		if err := s.store(all, body); err != nil {
			s.close()
			return nil, err
		}
	}
	hash.Sum(s.sum[:0])
	return s, nil
}

// store puts the rest of a body into a file.
func (s *spool) store(rest io.Reader, body *paced) error {
	file, err := os.CreateTemp("", "belfry-import-*")
	if err != nil {
		return fmt.Errorf("make a file for a body: %w", err)
	}
	s.file = file
	os.Remove(file.Name()) // Where an open file cannot lose its name, close does it.
	most := int64(maxBulk - len(s.head))
	n, err := io.Copy(file, io.LimitReader(rest, most+1))
	switch {
	case body.err != nil:
		return readError(body.err)
	case err != nil:
		return fmt.Errorf("keep a body in a file: %w", err)
	case n > most:
		return tooLarge(maxBulk)
	}
	s.rest = n
	return nil
}

// reader gives the body from its start, as often as it is asked.
func (s *spool) reader() io.Reader {
	if s.file == nil {
		return bytes.NewReader(s.head)
	}
	return io.MultiReader(bytes.NewReader(s.head), io.NewSectionReader(s.file, 0, s.rest))
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
		os.Remove(s.file.Name())
	}
	s.free()
}

// paced reads a body for as long as bytes keep coming.
type paced struct {
	body       io.Reader
	connection *http.ResponseController
	end        time.Time
	got        int
	err        error // of the body, to tell it from that of what it is written to
}

// renew gives the next bytes their time.
func (p *paced) renew() {
	p.got = 0
	until := time.Now().Add(paceWithin)
	if until.After(p.end) {
		until = p.end
	}
	p.connection.SetReadDeadline(until)
}

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if p.got += n; p.got >= paceBytes {
		p.renew()
	}
	if err != nil && err != io.EOF {
		p.err = err
	}
	return n, err
}
