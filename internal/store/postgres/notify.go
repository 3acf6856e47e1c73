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
const notifyChannel = "belfry"

// notifyEvery bounds how often a node notifies: a notification takes a lock on
// the whole database when it commits.
const notifyInterval = 50 * time.Millisecond

// maxNamed is how many job ids fit into one notification.
const maxNotifiedJobs = 300

// hints passes wake-ups on: at once within the process, merged and in
// transactions of their own to the others.
type notifier struct {
	store.Hub
	pool *pgxpool.Pool
	log  *slog.Logger
	self string

	mu           sync.Mutex
	pendingReady bool        // not told yet: runs became ready
	pendingJobs  []belfry.ID // not told yet: these plans changed
	pendingMany  bool
	wake         chan struct{}
}

func newNotifier(pool *pgxpool.Pool, log *slog.Logger) *notifier {
	return &notifier{pool: pool, log: log, self: belfry.NewToken().String(), wake: make(chan struct{}, 1)}
}

// Wakeups signals after something about the topic was written.
func (s *Store) Wakeups(ctx context.Context, topic store.Topic) <-chan struct{} {
	return s.notifier.Wakeups(ctx, topic)
}

// PollEvery is short: hints from other processes may be lost.
func (s *Store) PollInterval() time.Duration { return 500 * time.Millisecond }

// Changed gives the jobs that hints have told of.
func (s *Store) ChangedJobs() ([]belfry.ID, bool) { return s.notifier.ChangedJobs() }

// tellReady says that runs became ready.
func (h *notifier) notifyReady() {
	h.Notify(store.TopicReady)
	h.mu.Lock()
	h.pendingReady = true
	h.mu.Unlock()
	h.wakeSender()
}

// tellChanged says that these jobs' plans were written.
func (h *notifier) notifyPlans(many bool, jobs ...belfry.ID) {
	h.NotifyChanged(jobs, many)
	h.mu.Lock()
	h.pendingMany = h.pendingMany || many || len(h.pendingJobs)+len(jobs) > maxNotifiedJobs
	if h.pendingMany {
		h.pendingJobs = nil
	} else {
		h.pendingJobs = append(h.pendingJobs, jobs...)
	}
	h.mu.Unlock()
	h.wakeSender()
}

func (h *notifier) wakeSender() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// send notifies the other nodes of what was told, at most once in notifyEvery.
func (h *notifier) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		}
		for _, note := range h.takePending() {
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := h.pool.Exec(call, `SELECT pg_notify($1, $2)`, notifyChannel, h.self+" "+note)
			cancel()
			if err != nil && ctx.Err() == nil {
				h.log.Debug("a hint was not sent", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(notifyInterval):
		}
	}
}

// notes writes down what was not told yet: "ready", or "plans" and the jobs.
func (h *notifier) takePending() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var notes []string
	if h.pendingReady {
		notes = append(notes, string(store.TopicReady))
	}
	if h.pendingMany {
		notes = append(notes, string(store.TopicPlans)+" *")
	} else if len(h.pendingJobs) > 0 {
		var b strings.Builder
		b.WriteString(string(store.TopicPlans))
		for _, id := range h.pendingJobs {
			b.WriteByte(' ')
			b.WriteString(base64.RawURLEncoding.EncodeToString(id[:]))
		}
		notes = append(notes, b.String())
	}
	h.pendingReady, h.pendingJobs, h.pendingMany = false, nil, false
	return notes
}

// listen wakes this process when another one notified.
func (h *notifier) listen(ctx context.Context, config *pgx.ConnConfig) {
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

func (h *notifier) listenOnce(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `LISTEN `+notifyChannel); err != nil {
		return err
	}
	h.Notify(store.TopicPlans) // whatever was said while nobody listened
	h.Notify(store.TopicReady)
	for {
		note, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		h.receive(note.Payload)
	}
}

// hear takes in another node's note.
func (h *notifier) receive(note string) {
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
