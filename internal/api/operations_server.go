package api

import "net/http"

// serverOperations are those that describe the server.
func (a *api) serverOperations() []operation {
	return []operation{
		a.indexOperation(),
		{
			id: "getOpenAPI", method: "GET", path: "/api/v1/openapi.json", group: groupServer,
			summary: "Get this description",
			about:   "The API as an OpenAPI 3.1 document.",
			answers: []reply{{status: http.StatusOK, about: "The document.", headers: []string{"ETag"}, content: &content{media: []string{mediaJSON}}}, unchanged},
			open:    true, handler: http.HandlerFunc(a.openapi),
		},
		{
			id: "getReference", method: "GET", path: "/docs/api", group: groupServer,
			summary: "Read this description",
			about:   "The API as a page for people.",
			answers: []reply{{status: http.StatusOK, about: "The page.", headers: []string{"ETag"}, content: &content{media: []string{"text/html"}, kind: typeOf[string]()}}, unchanged},
			open:    true, handler: http.HandlerFunc(a.reference),
		},
	}
}

// unchanged answers who has a description already.
var unchanged = reply{status: http.StatusNotModified, about: "It is still the one that `If-None-Match` names.", headers: []string{"ETag"}}

func (a *api) indexOperation() operation {
	return operation{
		id: "getIndex", method: "GET", path: "/{$}", group: groupServer,
		summary: "List the operations",
		about:   "Every method and path that there is.",
		answers: []reply{writes[directory](http.StatusOK, "What there is.")},
		handler: route(a, readNothing, a.index),
	}
}

// healthOperations tell machines whether this one is well.
func (a *api) healthOperations() []operation {
	text := &content{media: []string{"text/plain"}, kind: typeOf[string]()}
	return []operation{
		{
			id: "getLive", method: "GET", path: "/livez", group: groupServer, open: true,
			summary: "Ask whether the process lives",
			about:   "Answers for as long as the process can answer at all. Needs no key.",
			answers: []reply{{status: http.StatusOK, about: "It does.", content: text}},
			handler: http.HandlerFunc(a.livez),
		},
		{
			id: "getReady", method: "GET", path: "/readyz", group: groupServer, open: true,
			summary:  "Ask whether the node is ready",
			about:    "Says whether requests should be sent here, and if not, why: the database cannot be reached, or the node shuts down. Needs no key.",
			answers:  []reply{{status: http.StatusOK, about: "They should.", content: text}},
			refusals: []int{http.StatusServiceUnavailable},
			handler:  http.HandlerFunc(a.readyz),
		},
	}
}
