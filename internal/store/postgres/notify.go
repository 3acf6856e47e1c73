package postgres

import (
	"context"
	"encoding/base64"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	notifyChannel   = "belfry"              // of all nodes
	notifyInterval  = 20 * time.Millisecond // a notification locks the whole database when it commits
	maxNotifiedJobs = 300                   // ids that fit into one notification
	listenTimeout   = 3 * time.Second       // after which a connection must show that it is alive
)

// notifier wakes waiters: at once within the process, and other nodes by merged
// notifications in transactions of their own.
type notifier struct {
	store.Hub
	pool *pool
	log  *slog.Logger
	node string // sender of our notifications

	mu           sync.Mutex
	pendingReady bool
	pendingJobs  []belfry.ID
	pendingMany  bool // too many jobs to list
	wake         chan struct{}
}

// PollInterval is short, since notifications of other nodes may be lost.
func (s *Store) PollInterval() time.Duration { return 500 * time.Millisecond }

func (n *notifier) notifyReady() {
	n.Notify(store.TopicReady)
	n.mu.Lock()
	n.pendingReady = true
	n.mu.Unlock()
	n.wakeSender()
}

func (n *notifier) notifyPlans(many bool, jobs ...belfry.ID) {
	n.NotifyChanged(jobs, many)
	n.mu.Lock()
	n.pendingMany = n.pendingMany || many || len(n.pendingJobs)+len(jobs) > maxNotifiedJobs
	if n.pendingMany {
		n.pendingJobs = nil
	} else {
		n.pendingJobs = append(n.pendingJobs, jobs...)
	}
	n.mu.Unlock()
	n.wakeSender()
}

func (n *notifier) wakeSender() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// send notifies other nodes, at most once in notifyInterval.
func (n *notifier) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		for _, message := range n.takePending() {
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := n.pool.Exec(call, `SELECT pg_notify($1, $2)`, notifyChannel, n.node+" "+message)
			cancel()
			if err != nil && ctx.Err() == nil {
				n.log.Debug("a notification was not sent", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(notifyInterval):
		}
	}
}

// takePending returns the messages to send: "ready", or "plans" and the jobs.
func (n *notifier) takePending() (messages []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pendingReady {
		messages = append(messages, string(store.TopicReady))
	}
	if n.pendingMany {
		messages = append(messages, string(store.TopicPlans)+" *")
	} else if len(n.pendingJobs) > 0 {
		var b strings.Builder
		b.WriteString(string(store.TopicPlans))
		for _, id := range n.pendingJobs {
			b.WriteByte(' ')
			b.WriteString(base64.RawURLEncoding.EncodeToString(id[:]))
		}
		messages = append(messages, b.String())
	}
	n.pendingReady, n.pendingJobs, n.pendingMany = false, nil, false
	return messages
}

func (n *notifier) listen(ctx context.Context, config *pgx.ConnConfig) {
	for first := true; ctx.Err() == nil; first = false {
		if err := n.listenOnce(ctx, config, first); err != nil && ctx.Err() == nil {
			n.log.Debug("listening for notifications failed; polling continues", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// listenOnce listens until the connection fails. What was sent before LISTEN is lost: at
// the start everything is read anyway, but later it must be read again.
func (n *notifier) listenOnce(ctx context.Context, config *pgx.ConnConfig, first bool) error {
	connect, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(connect, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(connect))
	if _, err := conn.Exec(connect, `LISTEN `+notifyChannel); err != nil {
		return err
	}
	n.NotifyChanged(nil, !first)
	n.Notify(store.TopicReady)
	for {
		message, err := n.receiveNext(ctx, conn)
		if err != nil {
			return err
		}
		if message != nil {
			n.receive(message.Payload)
		}
	}
}

// receiveNext waits for a notification. A connection on which nothing arrives must show
// that it is not silent.
func (n *notifier) receiveNext(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	wait, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	message, err := conn.WaitForNotification(wait)
	if !pgconn.Timeout(err) || ctx.Err() != nil {
		return message, err
	}
	ping, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	return nil, conn.Ping(ping)
}

func (n *notifier) receive(message string) {
	words := strings.Fields(message)
	if len(words) < 2 || words[0] == n.node {
		return
	}
	if topic := store.Topic(words[1]); topic == store.TopicReady || topic == store.TopicLeases {
		n.Notify(topic)
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
	n.NotifyChanged(jobs, many)
}
