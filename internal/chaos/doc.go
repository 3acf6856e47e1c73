// Package chaos proves the guarantees with real processes: nodes are killed,
// frozen and drained, the database is stopped and crashed, its answers are lost,
// every node believes that it owns everything, and workers elsewhere are killed,
// drained and cut off from their server. Meanwhile runs are cancelled, windows
// missed, dead letters redriven and one-offs put away, as the policies say.
//
// Each test has four parts that no fault touches. The driver asks for jobs and
// remembers what was acknowledged. The ledger is the HTTP server that the jobs, and
// the handlers of workers, call; it writes down every delivery and answers as the
// address says. The reader asks the API, at the end, for everything that it knows.
// The checker compares the three and gives a verdict for each promise that was
// broken; it knows nothing of the product's code, and is itself tested with bad
// histories.
//
// The tests run for seconds, and for minutes with BELFRY_TEST_CHAOS=1.
package chaos
