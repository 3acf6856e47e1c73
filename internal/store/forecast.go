package store

import "context"

// PlanSamples reads the plans of many jobs, for forecasts.
type PlanSamples interface {
	// NamespacePlans returns the plans of the jobs of a namespace that have something
	// planned. If a queue is given, plans of other queues may be left out. If it would have
	// to read more jobs than the limit, it returns none and false.
	NamespacePlans(ctx context.Context, namespace, queue string, limit int) (plans []Planned, complete bool, err error)

	// SamplePlans draws about n of the plans of all jobs that have something planned, each
	// of which has the same chance. One may be drawn twice. Each stands for so many plans
	// that they add up to about all. It reads no more if there are more plans, and none if
	// there are few.
	SamplePlans(ctx context.Context, n int) (plans []Planned, weight float64, err error)
}
