package worker

import (
	"log/slog"
	"os"
	"time"

	"github.com/belfry-sh/belfry"
)

// Option changes how a Pool works.
type Option func(*options)

type options struct {
	node         string
	queues       []string
	concurrency  int
	drainTimeout time.Duration
	log          *slog.Logger
}

// Concurrency says how many attempts may run at once: 100 unless it says
// otherwise, or says less than one.
func Concurrency(n int) Option { return func(o *options) { o.concurrency = n } }

// Queues says which queues to serve: "default" unless it names others.
func Queues(names ...string) Option { return func(o *options) { o.queues = names } }

// Node gives the worker a name for people: the host's unless it says otherwise.
func Node(name string) Option { return func(o *options) { o.node = name } }

// DrainTimeout says how long running attempts may go on once the pool stops:
// 30 seconds unless it says otherwise. With zero they are interrupted at once.
func DrainTimeout(d time.Duration) Option {
	return func(o *options) { o.drainTimeout = max(d, 0) }
}

// Log says where the pool tells of failures: slog.Default() unless it says
// otherwise.
func Log(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// resolve applies the options and fills in what they leave open.
func newOptions(given []Option) options {
	o := options{drainTimeout: 30 * time.Second}
	for _, option := range given {
		option(&o)
	}
	if o.node == "" {
		o.node, _ = os.Hostname()
	}
	if len(o.queues) == 0 {
		o.queues = []string{belfry.DefaultQueue}
	}
	if o.concurrency <= 0 {
		o.concurrency = 100
	}
	if o.log == nil {
		o.log = slog.Default()
	}
	return o
}
