// Package store is the storage contract, in roles named after what they hold.
// A backend implements all of it; a caller asks only for the role it needs.
//
// Three rules hold for every method. Time is the store's: whatever expires is
// given as a duration and judged by the store's clock, whatever is planned is an
// instant with microseconds. A write is all or nothing and does not stop half
// way when the caller's context ends. An error that is not a *belfry.Error
// leaves the outcome unknown, and repeating the same call is always safe: ids,
// versions and tokens chosen beforehand make the second one do nothing.
package store

import (
	"context"
	"time"
)

// Store is everything that a node keeps.
type Store interface {
	Jobs
	Plans
	Runs
	History
	DeadLetters
	Leases

	// Shards is the number of shards, fixed when the store was made.
	Shards() int

	// Now is the store's time as far as this process knows it, without asking.
	Now() time.Time

	// Ping asks the database whether it answers.
	Ping(ctx context.Context) error

	// Wakeups signals on the channel after something that concerns the topic was
	// written, by this process or another, until ctx ends. It is a hint: signals
	// are merged and may be lost, so a caller polls as well.
	Wakeups(ctx context.Context, topic Topic) <-chan struct{}

	// PollEvery is how often to look where no hint came: seldom for a store whose
	// hints reach everybody because it has one process.
	PollInterval() time.Duration

	Close() error
}

// Topic is what a wake-up is about.
type Topic string

// The topics.
const (
	TopicPlans Topic = "plans" // a plan or a trigger was written by somebody else than its shard's owner
	TopicReady Topic = "ready" // runs became ready
)
