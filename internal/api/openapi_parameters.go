package api

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
)

var pathParameters = regexp.MustCompile(`\{([a-z_]+)\}`)

// parameters describes those of the path, of the query and of the header.
func (d *document) parameters(op *operation) []*documentParameter {
	var out []*documentParameter
	for _, match := range pathParameters.FindAllStringSubmatch(op.path, -1) {
		component := match[1]
		if component == "id" {
			component = "job"
			if strings.HasPrefix(op.path, runsPath) || strings.HasPrefix(op.path, deadPath) {
				component = "run"
			}
		}
		out = append(out, d.sharedParameter(component, match[1]))
	}
	if spoken(op) {
		out = append(out, d.sharedParameter(namespaceHeader, namespaceHeader))
	}
	for _, p := range op.parameters {
		if p.name == namespaceHeader {
			continue
		}
		if shared, ok := sharedParameters[p.name]; ok && shared.In == p.in {
			out = append(out, d.sharedParameter(p.name, p.name))
		} else {
			out = append(out, d.parameter(p))
		}
	}
	return out
}

// spoken tells whether an operation is part of the versioned API and looks into a
// namespace.
func spoken(op *operation) bool {
	return slices.ContainsFunc([]string{jobsPath, runsPath, workersPath, deadPath, eventsPath}, func(path string) bool {
		return strings.HasPrefix(op.path, path)
	})
}

// parameter describes one that a single operation has.
func (d *document) parameter(p parameter) *documentParameter {
	out := &documentParameter{Name: p.name, In: p.in, Description: p.about, Schema: d.schemas.of(p.kind)}
	if p.kind == nil {
		out.Schema = &schema{Type: kinds{"string"}}
	}
	out.Schema.Enum = append(out.Schema.Enum, p.words...)
	if p.many && out.Schema.Items == nil {
		out.Schema = &schema{Type: kinds{"array"}, Items: out.Schema}
	}
	out.Explode = p.many
	if p.example != nil {
		text, err := json.Marshal(p.example)
		if err != nil {
			d.schemas.fault("the example of the parameter %s: %v", p.name, err)
		}
		if p.many && reflect.TypeOf(p.example).Kind() != reflect.Slice {
			text = json.RawMessage("[" + string(text) + "]")
		}
		out.Example = text
	}
	return out
}

// sharedParameter refers to the component of a parameter that several operations
// have.
func (d *document) sharedParameter(component, name string) *documentParameter {
	if _, there := d.Components.Parameters.get(component); !there {
		known, ok := sharedParameters[component]
		if !ok {
			d.schemas.fault("the parameter %s is not described", component)
		}
		known.Name = name
		d.Components.Parameters.add(component, &known)
	}
	return &documentParameter{Ref: "#/components/parameters/" + component}
}

var sharedParameters = map[string]documentParameter{
	"job": {
		In: "path", Required: true, Description: "The id of a job, or its name, percent-encoded.",
		Schema: &schema{Type: kinds{"string"}, limits: limits{MinLength: 1}}, Example: json.RawMessage(samples["Job.name"]),
	},
	"run": {
		In: "path", Required: true, Description: "The id of a run.",
		Schema: &schema{Type: kinds{"string"}, Format: "uuid"}, Example: json.RawMessage(samples["Run.id"]),
	},
	"worker": {
		In: "path", Required: true, Description: "An id that the worker draws afresh at every start: a UUID of version 4 or 7.",
		Schema: &schema{Type: kinds{"string"}, Format: "uuid"}, Example: json.RawMessage(samples["Run.worker"]),
	},
	namespaceHeader: {
		In: "header", Description: "The namespace to work in.",
		Schema: &schema{
			Type: kinds{"string"}, Default: json.RawMessage(quoted(belfry.DefaultNamespace)),
			limits: limits{Pattern: "^[a-z0-9-]{1,63}$"},
		},
	},
	"Idempotency-Key": {
		In: "header", Description: "Any text of your own, for this request alone. The same request under the same key gets the same answer for seven days, " +
			"and is done once; another request under it is refused with 422.",
		Schema: &schema{Type: kinds{"string"}}, Example: json.RawMessage(`"6d2a6c1e-create-nightly-report"`),
	},
	"If-Match": {
		In: "header", Description: "The `ETag` of the job as last seen. If it has changed since, nothing is done and the answer is 412.",
		Schema: &schema{Type: kinds{"string"}}, Example: answerHeaders["ETag"].Example,
	},
	"limit": {
		In: "query", Description: "How many items a page has.",
		Schema: &schema{Type: kinds{"integer"}, Default: json.RawMessage(strconv.Itoa(defaultLimit)), limits: between(1, maxLimit)},
	},
	"cursor": {
		In: "query", Description: "Where the page begins: taken from the `Link` header of the page before, as it is.",
		Schema: &schema{Type: kinds{"string"}},
	},
}
