package worker

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/secret"
)

const (
	logInterval   = time.Second // between two heartbeats that are sent for logs
	maxLogBytes   = 256 << 10   // of logs in a heartbeat, which must stay quick
	maxLogChunks  = 1000        // the same in attempts
	wholeLogEvery = 64          // chunks after which the whole log is sent again, so that a source keeps few pieces of it
)

// attemptLog is the log of an attempt: the newest belfry.MaxLog bytes of what its handler
// wrote. The zero value is empty.
type attemptLog struct {
	written chan struct{}   // signalled when there is something new
	payload json.RawMessage // whose secrets are erased
	report  *belfry.Report  // the same; its secrets are set before anything is written

	mu     sync.Mutex // guards the fields below
	secret *secret.Redactor
	text   []byte // at most twice as much as is kept
	start  int64  // bytes of the log before text
	sent   int64  // bytes of the log that the source has
	chunks int    // that it has accepted
	ended  bool   // the attempt has its result: what comes later is dropped
}

func (l *attemptLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return len(b), nil
	}
	if len(l.text) == 0 && l.start == 0 {
		var more []string
		if l.report != nil {
			more = l.report.Secrets
		}
		l.secret = secret.NewRedactor(l.payload, more...)
	}
	from := max(len(l.text)-l.secret.Longest(), 0)
	l.text = append(l.text, b...)
	l.secret.Erase(l.text[from:])
	if len(l.text) > 2*belfry.MaxLog {
		l.cut()
	}
	signal(l.written)
	return len(b), nil
}

// cut drops what is not kept; mu is held.
func (l *attemptLog) cut() {
	over := len(l.text) - belfry.MaxLog
	if over <= 0 {
		return
	}
	for over < len(l.text) && !utf8.RuneStart(l.text[over]) {
		over++
	}
	l.text, l.start = slices.Clone(l.text[over:]), l.start+int64(over)
}

// chunk returns what the source does not have yet, without a last character that is not
// complete, and where that begins in the log. The text is empty if there is nothing.
func (l *attemptLog) chunk() (offset int64, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stop := l.start + int64(len(l.text)-l.secret.Begun(l.text)) // A secret may be written in pieces.
	for i := len(l.text) - 1; i >= max(len(l.text)-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(l.text[i]) {
			if !utf8.FullRune(l.text[i:]) {
				stop = min(stop, l.start+int64(i))
			}
			break
		}
	}
	if stop <= l.sent {
		return 0, ""
	}
	l.cut()
	offset = max(l.sent, l.start)
	if l.chunks%wholeLogEvery == wholeLogEvery-1 {
		offset = l.start
	}
	return offset, sanitize.Log(string(l.text[offset-l.start : stop-l.start]))
}

// accepted records up to where the source has the log.
func (l *attemptLog) accepted(stop int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = max(l.sent, stop)
	l.chunks++
}

// end returns the whole log, as far as it is kept.
func (l *attemptLog) end() (offset int64, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if len(l.text) == 0 {
		return 0, ""
	}
	l.cut()
	offset, text = l.start, sanitize.Log(string(l.text))
	l.text = nil
	return offset, text
}

// newLogs returns what handlers wrote since the last heartbeat, as much as fits; mu is
// held.
func (p *Pool) newLogs() (chunks []belfry.LogChunk) {
	size := 0
	for _, a := range p.running {
		if size > maxLogBytes-belfry.MaxLog || len(chunks) == maxLogChunks {
			signal(p.logged) // the others are next
			break
		}
		offset, text := a.log.chunk()
		if text == "" {
			continue
		}
		size += len(text)
		r := a.result
		chunks = append(chunks, belfry.LogChunk{Namespace: r.Namespace, RunID: r.RunID, Attempt: r.Attempt, Token: r.Token, Offset: offset, Text: text})
	}
	return chunks
}

// logsAccepted records what the source has of the logs.
func (p *Pool) logsAccepted(chunks []belfry.LogChunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range chunks {
		if a := p.findRunning(belfry.HeldAttempt{RunID: c.RunID, Attempt: c.Attempt}); a != nil {
			a.log.accepted(c.Offset + int64(len(c.Text)))
		}
	}
}

// awaitHeartbeat waits for d until the next heartbeat is due. It is due earlier, but not
// within a second after the last one was sent, when a handler has written to its log. It
// returns false if ctx ended.
func (p *Pool) awaitHeartbeat(ctx context.Context, d time.Duration, sent time.Time) bool {
	due, logged, early := time.After(d), p.logged, (<-chan time.Time)(nil)
	for {
		select {
		case <-logged:
			logged, early = nil, time.After(logInterval-time.Since(sent))
		case <-early:
			var logs []belfry.LogChunk
			if p.locked(func() { logs = p.newLogs() }); len(logs) > 0 {
				return true
			}
			logged, early = p.logged, nil
		case <-due:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
