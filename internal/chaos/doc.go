// Package chaos proves the guarantees with real processes: nodes are killed, frozen and
// drained, the database is stopped and crashed, its replies are lost, every node owns
// every shard, and workers elsewhere are killed, drained and partitioned from their
// server. Meanwhile runs are cancelled, windows missed, dead letters redriven and
// one-offs archived, as the policies say.
//
// Each test has four parts without faults. The driver creates jobs and records what was
// acknowledged. The receiver is the HTTP server that the jobs, and the handlers of
// workers, call; it records every delivery and responds as the path says. The reader
// reads, at the end, everything from the API. The checker compares the three and returns
// a verdict for each guarantee that was violated; it uses none of the product's code,
// and is itself tested with invalid histories.
//
// The tests run for seconds, and for minutes with BELFRY_TEST_CHAOS=1.
package chaos
