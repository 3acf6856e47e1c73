package postgres

import (
	"context"
	"encoding/base64"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// channel carries the hints of all nodes.
const channel = "belfry"

// notifyEvery bounds how often a node notifies: a notification takes a lock on
// the whole database when it commits.
const notifyEvery = 50 * time.Millisecond

// maxNamed is how many job ids fit into one notification.
const maxNamed = 300

// hints passes wake-ups on: at once within the process, merged and in
// transactions of their own to the others.
type hints struct {
	store.Hub
	pool *pgxpool.Pool
	log  *slog.Logger
	self string

	mu    sync.Mutex
	ready bool        // not told yet: runs became ready
	jobs  []belfry.ID // not told yet: these plans changed
	many  bool
	wake  chan struct{}
}

func newHints(pool *pgxpool.Pool, log *slog.Logger) *hints {
	return &hints{pool: pool, log: log, self: belfry.NewToken().String(), wake: make(chan struct{}, 1)}
}

// Wakeups signals after something about the topic was written.
func (s *Store) Wakeups(ctx context.Context, topic store.Topic) <-chan struct{} {
	return s.hints.Wakeups(ctx, topic)
}

// PollEvery is short: hints from other processes may be lost.
func (s *Store) PollInterval() time.Duration { return 500 * time.Millisecond }

// Changed gives the jobs that hints have told of.
func (s *Store) ChangedJobs() ([]belfry.ID, bool) { return s.hints.ChangedJobs() }

// tellReady says that runs became ready.
func (h *hints) tellReady() {
	h.Notify(store.TopicReady)
	h.mu.Lock()
	h.ready = true
	h.mu.Unlock()
	h.poke()
}

// tellChanged says that these jobs' plans were written.
func (h *hints) tellChanged(many bool, jobs ...belfry.ID) {
	h.NotifyChanged(jobs, many)
	h.mu.Lock()
	h.many = h.many || many || len(h.jobs)+len(jobs) > maxNamed
	if h.many {
		h.jobs = nil
	} else {
		h.jobs = append(h.jobs, jobs...)
	}
	h.mu.Unlock()
	h.poke()
}

func (h *hints) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// send notifies the other nodes of what was told, at most once in notifyEvery.
func (h *hints) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		}
		for _, note := range h.notes() {
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := h.pool.Exec(call, `SELECT pg_notify($1, $2)`, channel, h.self+" "+note)
			cancel()
			if err != nil && ctx.Err() == nil {
				h.log.Debug("a hint was not sent", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(notifyEvery):
		}
	}
}

// notes writes down what was not told yet: "ready", or "plans" and the jobs.
func (h *hints) notes() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var notes []string
	if h.ready {
		notes = append(notes, string(store.TopicReady))
	}
	if h.many {
		notes = append(notes, string(store.TopicPlans)+" *")
	} else if len(h.jobs) > 0 {
		var b strings.Builder
		b.WriteString(string(store.TopicPlans))
		for _, id := range h.jobs {
			b.WriteByte(' ')
			b.WriteString(base64.RawURLEncoding.EncodeToString(id[:]))
		}
		notes = append(notes, b.String())
	}
	h.ready, h.jobs, h.many = false, nil, false
	return notes
}

// listen wakes this process when another one notified.
func (h *hints) listen(ctx context.Context, config *pgx.ConnConfig) {
	for ctx.Err() == nil {
		if err := h.listenOnce(ctx, config); err != nil && ctx.Err() == nil {
			h.log.Debug("listening for hints failed; polling goes on", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (h *hints) listenOnce(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return err
	}
	h.Notify(store.TopicPlans) // whatever was said while nobody listened
	h.Notify(store.TopicReady)
	for {
		note, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		h.hear(note.Payload)
	}
}

// hear takes in another node's note.
func (h *hints) hear(note string) {
	words := strings.Fields(note)
	if len(words) < 2 || words[0] == h.self {
		return
	}
	if words[1] == string(store.TopicReady) {
		h.Notify(store.TopicReady)
		return
	}
	many := false
	var jobs []belfry.ID
	for _, word := range words[2:] {
		raw, err := base64.RawURLEncoding.DecodeString(word)
		if err != nil || len(raw) != 16 {
			many = true
			continue
		}
		jobs = append(jobs, belfry.ID(raw))
	}
	h.NotifyChanged(jobs, many)
}
