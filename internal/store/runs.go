package store

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// Runs is the live runs. It satisfies worker.Source; a claim does not wait.
type Runs interface {
	Lanes
	Reaper

	// Claim hands ready runs of the lanes to a registered worker, lowest rank
	// first. It returns none if the worker is not known.
	Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error)

	// ClaimRuns is Claim for those of the runs that are ready in the lanes: others are left
	// out without an error.
	ClaimRuns(ctx context.Context, c belfry.Claim, runs []belfry.ID) ([]*belfry.Run, error)

	// ReadyRuns lists the ready runs of a lane in the shards, lowest rank first.
	ReadyRuns(ctx context.Context, lane string, shards []int, limit int) ([]belfry.ID, error)

	// Heartbeat records that a worker is alive and returns which of its attempts it
	// lost and which are cancelled, whether it lists them or not. Logs of attempts that
	// it holds are kept, see LogPiece.
	Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error)

	// Finish settles attempts. Each result is applied only if its run is held by
	// exactly this attempt; otherwise it is kept as evidence and changes nothing, and
	// its log is dropped.
	// When a run ends, the next waiting run of its job is promoted, and a finished
	// one-off is archived.
	Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error)

	// Cancel ends a run: at once if no worker holds it, otherwise when its worker has
	// stopped. Repeating it does nothing. A run that is settled with any status but
	// cancelled is a Conflict; NotFound if there is none.
	Cancel(ctx context.Context, namespace string, run belfry.ID) error

	// Workers lists the registered workers.
	Workers(ctx context.Context) ([]Worker, error)
}

// Reaper settles attempts that their workers will not finish.
type Reaper interface {
	// Reap unregisters the workers that were silent for so long (a zero silence:
	// none), and settles the attempts whose worker is not registered or whose deadline
	// has passed, or which were cancelled CancelGrace ago, at most limit. It returns the
	// results that it settled them with. One call serves all nodes: it costs what the
	// running runs of all shards cost, and two at once settle an attempt once.
	//
	// A deadline counts only if the worker was heard after it, and without a gap since
	// the attempt started: a worker that may be lost is waited for, since a lost attempt
	// costs no retry, and one that could not report first reports. For ClockGrace after a
	// step of the store's clock no worker is silent and no attempt overdue.
	Reap(ctx context.Context, silence time.Duration, limit int) ([]belfry.Result, error)
}

// Worker is a registered worker incarnation.
type Worker struct {
	ID        belfry.ID
	Node      string
	Slots     int
	Lanes     []string
	StartedAt time.Time
	LastSeen  time.Time
}

// How long the store waits for workers, and keeps what repeated calls need.
const (
	DeadlineGrace = 10 * time.Second // after the timeout of an attempt, until it is taken from a worker that still seems alive
	CancelGrace   = 30 * time.Second // for a worker to stop a cancelled run
	ConfirmAfter  = 10 * time.Second // the age from which a claim that its worker does not list is released
	HeartbeatGap  = 10 * time.Second // between two heartbeats of a worker that was connected all the time, at most

	KeyRetention        = 7 * 24 * time.Hour // after its success a run keeps others of the job from having the same idempotency key
	RequestRetention    = 7 * 24 * time.Hour // keys of requests
	OutageRetention     = 90 * 24 * time.Hour
	TriggerRetention    = 24 * time.Hour // fired triggers, so that repeating a request does nothing
	DeletedJobRetention = time.Hour      // beside the live jobs; then it is archived
)

// LogPiece is a part of the log of an attempt as it is stored: the bytes of the log from
// Start to Stop. A piece replaces those that it covers, and those that are MaxLog bytes
// older are deleted. One that ends before another does is out of date and ignored.
type LogPiece struct {
	belfry.LogChunk
	Start, Stop int64
}

// LogPieces are chunks as they are stored, in the order of their runs. Of several that
// begin at the same place the last one counts.
func LogPieces(chunks []belfry.LogChunk) []LogPiece {
	var pieces []LogPiece
	for _, c := range chunks {
		if c.Text == "" {
			continue
		}
		stop := c.Offset + int64(len(c.Text))
		c.Text = sanitize.Log(newestLog(c.Text, belfry.MaxLog))
		p := LogPiece{c, stop - int64(len(c.Text)), stop}
		same := func(o LogPiece) bool { return o.RunID == p.RunID && o.Attempt == p.Attempt && o.Start == p.Start }
		pieces = append(slices.DeleteFunc(pieces, same), p)
	}
	slices.SortStableFunc(pieces, func(a, b LogPiece) int { return a.RunID.Compare(b.RunID) })
	return pieces
}

// ResultLogs are the logs that come with results.
func ResultLogs(results []belfry.Result) (chunks []belfry.LogChunk) {
	for _, r := range results {
		if r.Log != "" {
			chunks = append(chunks, belfry.LogChunk{Namespace: r.Namespace, RunID: r.RunID, Attempt: r.Attempt, Token: r.Token, Offset: r.LogOffset, Text: r.Log})
		}
	}
	return chunks
}

// JoinLog makes a log of pieces in the order of their starts: the newest MaxLog bytes
// from an offset on. What lies before a gap was cut.
func JoinLog(pieces []LogPiece, run belfry.ID, q belfry.LogQuery) belfry.RunLog {
	log := belfry.RunLog{RunID: run, Attempt: q.Attempt, NextOffset: q.Offset}
	var text []byte
	for _, p := range pieces {
		if p.Start > log.NextOffset || text == nil {
			text, log.NextOffset = text[:0], p.Start
		}
		if p.Stop > log.NextOffset {
			text = append(text, p.Text[log.NextOffset-p.Start:]...)
			log.NextOffset = p.Stop
		}
		log.Attempt = p.Attempt
	}
	log.Text = newestLog(string(text), int(min(belfry.MaxLog, max(log.NextOffset-q.Offset, 0))))
	log.Offset = log.NextOffset - int64(len(log.Text))
	return log
}

// newestLog returns the last bytes of a text, at most so many, in whole characters.
func newestLog(text string, limit int) string {
	text = text[max(len(text)-limit, 0):]
	for start := range text {
		if start >= utf8.UTFMax || utf8.RuneStart(text[start]) {
			return text[start:]
		}
	}
	return text
}
