package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
)

const importTimeout = 15 * time.Minute

// ImportJobs makes all jobs of a sequence or none, and gives their ids in
// order. The jobs are sent as they are drawn, so that they need not fit in
// memory, but for a server's limit of 64 MiB. A sequence that ends in an error
// makes none. An import is repeated only if it failed before the sequence was
// begun; whoever can begin it again gives an IdempotencyKey and calls again.
func (c *Client) ImportJobs(ctx context.Context, manifests iter.Seq2[belfry.Manifest, error], options ...CallOption) ([]belfry.ID, error) {
	q := newCall("import jobs", http.MethodPost, jobsPath+"/bulk", options...)
	keyed(q)
	q.timeout = importTimeout
	q.stream = &lines{manifests: manifests}
	var out belfry.ImportResult
	_, err := c.json(ctx, q, nil, &out)
	if failed := q.stream.end(); failed != nil {
		return nil, fmt.Errorf("import jobs: %w", failed)
	}
	return out.JobIDs, err
}

// lines turns manifests into lines of JSON, as many as are asked for. A connection
// may go on reading after its answer has come, so that each try has a reader of
// its own and only the latest gets anything.
type lines struct {
	manifests iter.Seq2[belfry.Manifest, error]

	mu     sync.Mutex // guards the fields below
	latest *lineReader
	next   func() (belfry.Manifest, error, bool) // nil until the sequence is begun
	stop   func()
	buffer bytes.Buffer
	line   int
	failed error // why the sequence could not be sent
	panics any   // what it panicked with
}

type lineReader struct{ *lines }

// reader gives the reader of the next try.
func (l *lines) reader() io.Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = &lineReader{l}
	return l.latest
}

// rewind tells whether the sequence is not begun yet, so that there may be
// another try.
func (l *lines) rewind() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = nil
	return l.next == nil
}

// end stops the sequence for good and says what was wrong with it. A panic of
// the sequence goes on here, where its caller can see it.
func (l *lines) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = nil
	if l.stop != nil {
		l.stop()
	}
	if l.panics != nil {
		panic(l.panics)
	}
	return l.failed
}

// Read gives the next bytes of the lines.
func (r *lineReader) Read(p []byte) (int, error) {
	l := r.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest != r {
		return 0, errors.New("the request is over")
	}
	if l.next == nil {
		l.next, l.stop = iter.Pull2(l.manifests)
	}
	for l.failed == nil && l.buffer.Len() < len(p) {
		if !l.fill() {
			break
		}
	}
	if l.failed != nil {
		return 0, l.failed
	}
	return l.buffer.Read(p) // io.EOF once there is no more
}

// fill draws the next line; mu is held.
func (l *lines) fill() (more bool) {
	defer func() {
		if v := recover(); v != nil {
			l.panics, l.failed, more = v, errors.New("the sequence panicked"), false
		}
	}()
	manifest, err, more := l.next()
	if !more {
		return false
	}
	l.line++
	if err != nil {
		l.failed = fmt.Errorf("line %d: %w", l.line, err)
		return false
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		l.failed = belfry.Errorf(belfry.Invalid, "line %d cannot be written as JSON: %w", l.line, err)
		return false
	}
	l.buffer.Write(append(text, '\n'))
	return true
}
