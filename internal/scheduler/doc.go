// Package scheduler turns plans into runs: one loop a node, for all the shards
// that the node owns.
//
// Five goroutines share the work. The loader brings plans from the store: those
// within the horizon, those that a hint says have changed and, as the guarantee
// behind both, those that are overdue and still unknown. The loop keeps them in a
// timing wheel, decides each at its instant and fires the decisions in batches.
// The sweeper makes due retries ready, gives up silent workers and forgets old
// history. The rezoner moves what an older zone database has planned elsewhere.
// Local hands what was fired straight to the node's own worker.
//
// Nothing here is trusted with the truth. What is in memory is a cache of the
// store; whoever believes wrongly that it owns a shard, or fires a stale plan,
// finds that its step is not applied, and reads the plan again.
package scheduler
