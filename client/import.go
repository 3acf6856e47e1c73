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

// ImportJobs creates all jobs of a sequence or none, and returns their ids in order. It
// sends the jobs while it reads the sequence, so that they need not fit in memory; a
// server accepts 64 MiB. If the sequence ends in an error, no job is created. An import
// is retried only if it failed before the sequence was started; a caller that can start
// it again may call again with the same IdempotencyKey.
func (c *Client) ImportJobs(ctx context.Context, manifests iter.Seq2[belfry.Manifest, error], options ...CallOption) ([]belfry.ID, error) {
	stream := &lines{manifests: manifests}
	streamed := func(q *call) { q.stream = stream }
	out, err := fetch[belfry.ImportResult](ctx, c, "import jobs", http.MethodPost, jobsPath+"/bulk", nil, append(options, keyed, timeout(importTimeout), streamed)...)
	if failed := stream.end(); failed != nil {
		return nil, fmt.Errorf("import jobs: %w", failed)
	}
	return out.JobIDs, err
}

// lines encodes manifests as lines of JSON, on demand. A connection may continue to read
// after its answer has arrived; therefore each try has its own reader, and only the
// latest returns data.
type lines struct {
	manifests iter.Seq2[belfry.Manifest, error]

	mu     sync.Mutex // guards the fields below
	latest *lineReader
	next   func() (belfry.Manifest, error, bool) // nil until the sequence is started
	stop   func()
	buffer bytes.Buffer
	line   int
	failed error // of the sequence
	panics any   // value of its panic
}

type lineReader struct{ *lines }

func (l *lines) reader() io.Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = &lineReader{l}
	return l.latest
}

// rewind reports whether there may be another try: the sequence is not started yet.
func (l *lines) rewind() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = nil
	return l.next == nil
}

// end stops the sequence and returns its error. It repeats a panic of the sequence in
// the goroutine of the caller.
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

// Read returns the next bytes of the lines.
func (r *lineReader) Read(p []byte) (int, error) {
	l := r.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest != r {
		return 0, errors.New("the request has ended")
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

// fill reads the next line; mu is held.
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
		l.failed = belfry.Errorf(belfry.Invalid, "line %d has no JSON form: %w", l.line, err)
		return false
	}
	l.buffer.Write(append(text, '\n'))
	return true
}
