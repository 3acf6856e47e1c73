// Package dispatch tells workers of ready runs over a message broker, so that they need not
// ask the database for work.
//
// An announcement is a hint: the id of a run that was ready. A worker claims the run in the
// database before it runs it, so that an announcement that is lost, doubled, late or reordered
// changes nothing. An Announcer, on the node that owns a shard, announces runs that stay ready
// again. A Source, on a node that works, also asks the database once a second, and as often as
// without a broker while none brings work.
package dispatch

import (
	"context"
	"strings"

	"github.com/belfry-sh/belfry"
)

// Queue carries announcements of ready runs from schedulers to workers. Its methods may be
// called concurrently.
type Queue interface {
	// Announce sends ids of ready runs of a lane, until the deadline that ctx has. A group is
	// a message, which reaches one worker, if any.
	Announce(ctx context.Context, lane string, groups [][]belfry.ID) error

	// Receive waits for announcements of a lane and returns some, about max at most. An error
	// is the broker's, or that of ctx.
	Receive(ctx context.Context, lane string, max int) ([]belfry.ID, error)

	Close()
}

// maxAge is for how many seconds a broker keeps announcements that nobody receives, and
// maxKept how many of a lane, where it can be limited.
const (
	maxAge  = 60
	maxKept = 100_000
)

// A worker that has few slots gets few runs at once, so that others get the rest: a group is
// no larger than this part of the slots of the smallest worker, and maxGroup at most.
const (
	slotsPerRun = 4
	maxGroup    = 8
)

// messages is how many to ask for if there are so many slots.
func messages(slots int) int { return max(slots/slotsPerRun, 1) }

// encode is the body of a message: ids, one per line.
func encode(runs []belfry.ID) string {
	var b strings.Builder
	for i, id := range runs {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(id.String())
	}
	return b.String()
}

// maxBody is the length of a body that is read; no message of a Queue is longer.
const maxBody = 4 << 10

// appendIDs adds the ids of a body. What is no id is left out.
func appendIDs(runs []belfry.ID, body string) []belfry.ID {
	for line := range strings.Lines(body[:min(len(body), maxBody)]) {
		if id, err := belfry.ParseID(strings.TrimSuffix(line, "\n")); err == nil {
			runs = append(runs, id)
		}
	}
	return runs
}

// orNil is the error of a Receive: none if there are runs, since the next one will fail too.
func orNil(runs []belfry.ID, err error) error {
	if len(runs) > 0 {
		return nil
	}
	return err
}

// laneName is a lane in the words that all brokers allow: letters, digits, hyphens and the
// separator.
func laneName(lane, separator string) string {
	parts := strings.Split(lane, "/")
	for i := range parts {
		parts[i] = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
				return r
			}
			return '-'
		}, parts[i])
	}
	return strings.Join(parts, separator)
}
