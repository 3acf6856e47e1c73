package store

import "context"

// Maintenance is the database as a whole, for those who own all of it or a namespace.
type Maintenance interface {
	// Namespaces lists the namespaces that have jobs, in order. Deleted and archived jobs
	// do not count.
	Namespaces(ctx context.Context) ([]string, error)

	// DeleteNamespace removes the jobs of a namespace at once with all that belongs to
	// them: plans, live runs, history, dead letters. Schedulers and workers that know them
	// find out by themselves. If the database has nothing else, it is empty afterwards,
	// also on disk.
	DeleteNamespace(ctx context.Context, namespace string) error

	// Usage says what the tables of jobs and plans occupy.
	Usage(ctx context.Context) (Usage, error)
}

// Usage is what tables occupy, as far as the database knows.
type Usage struct {
	Bytes     int64 // jobs and plans with their indexes; on SQLite the whole file
	DeadPlans int64 // dead tuples of plans that are not vacuumed yet, about; none on SQLite
	DeadRuns  int64 // the same of live runs
}
