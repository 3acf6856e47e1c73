package api

import (
	"net/http"
	"reflect"
	"slices"
)

// The headings of the reference.
const (
	groupJobs      = "Jobs"
	groupSchedules = "Schedules"
	groupRuns      = "Runs"
	groupDead      = "Dead letters"
	groupEvents    = "Events"
	groupWorkers   = "Workers"
	groupServer    = "Server"
)

// operations lists everything that can be asked for. A node without a store
// serves its health checks only.
func (a *api) operations() []operation {
	if a.control == nil {
		return append(a.healthOperations(), a.indexOperation())
	}
	return slices.Concat(
		a.jobOperations(), a.changeOperations(), a.manyOperations(), a.scheduleOperations(), a.stateOperations(), a.endOperations(), a.runOperations(), a.deadOperations(),
		a.eventOperations(), a.workerOperations(),
		a.serverOperations(), a.healthOperations(),
	)
}

// describe makes what the server says of itself. That it can is proved by a test,
// since it depends on nothing but the program.
func (a *api) describe(version string) {
	d, err := newDescription(a.served, traits{version: version, keyed: a.keys != nil, limited: a.keys != nil && a.limiter != nil})
	if err != nil {
		panic(err)
	}
	a.description = d
}

// reads is a body of JSON of a type that must be there.
func reads[T any](examples map[string]string) *content {
	return &content{media: []string{mediaJSON}, kind: reflect.TypeFor[T](), required: true, examples: examples}
}

// writes is an answer of JSON of a type.
func writes[T any](status int, about string, headers ...string) reply {
	return reply{status: status, about: about, headers: headers, content: &content{media: []string{mediaJSON}, kind: reflect.TypeFor[T]()}}
}

// Parameters that several operations have.
var (
	keyParameter   = parameter{name: keyHeader, in: "header", kind: reflect.TypeFor[string]()}
	matchParameter = parameter{name: matchHeader, in: "header", kind: reflect.TypeFor[string]()}
	pageParameters = []parameter{
		{name: "limit", in: "query", kind: reflect.TypeFor[int]()},
		{name: "cursor", in: "query", kind: reflect.TypeFor[string]()},
	}
)

// filterBy is a parameter of the query that narrows a list.
func filterBy[T any](name, about string, example any) parameter {
	return parameter{name: name, in: "query", about: about, kind: reflect.TypeFor[T](), example: example}
}

// Statuses of refusals that go together.
var (
	readRefusals = []int{http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
	missing      = http.StatusNotFound
	taken        = http.StatusConflict
	outdated     = http.StatusPreconditionFailed
)

func refusing(some []int, more ...int) []int { return append(slices.Clone(some), more...) }
