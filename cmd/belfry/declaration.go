package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry/client"
)

// declaration is a job as a file asks for it.
type declaration struct {
	file string
	line int
	name string
	node *yaml.Node

	members members // those that are set
}

// declarations takes the jobs out of a file: one a document, a list of them, or
// a list under the key jobs.
func declarations(file string, content []byte) ([]declaration, misplacedAll) {
	documents, err := readDocuments(file, content)
	if err != nil {
		return nil, gathered(err)
	}
	u := &unfolding{file: file}
	var jobs []declaration
	var faults misplacedAll
	for _, document := range documents {
		nodes, err := u.jobs(document)
		faults = append(faults, gathered(err)...)
		for _, n := range nodes {
			job, wrong := u.declaration(n)
			faults = append(faults, wrong...)
			jobs = append(jobs, job)
		}
	}
	return jobs, faults
}

// gathered makes a list of a fault.
func gathered(err error) misplacedAll {
	var one misplaced
	if errors.As(err, &one) {
		return misplacedAll{one}
	}
	return nil
}

// jobs gives the nodes of a document that are jobs.
func (u *unfolding) jobs(document *yaml.Node) ([]*yaml.Node, error) {
	root := follow(document)
	switch root.Kind {
	case yaml.SequenceNode:
		return root.Content, nil
	case yaml.MappingNode:
		members, err := u.members(root)
		if err != nil {
			return nil, err
		}
		return u.jobsUnderKey(root, members)
	}
	return nil, u.fault(root, "must be a job, a list of jobs, or jobs: with a list")
}

func (u *unfolding) jobsUnderKey(root *yaml.Node, members []member) ([]*yaml.Node, error) {
	var list *yaml.Node
	for _, m := range members {
		if m.name == "jobs" {
			list = follow(m.value)
		}
	}
	if list == nil {
		return []*yaml.Node{root}, nil
	}
	for _, m := range members {
		if m.name != "jobs" {
			return nil, u.fault(m.key, "%s is not known beside jobs", m.name)
		}
	}
	switch {
	case list.Kind == yaml.SequenceNode:
		return list.Content, nil
	case list.ShortTag() == "!!null":
		return nil, nil
	}
	return nil, u.fault(list, "jobs must be a list")
}

// declaration reads one job. Whatever is wrong with it is told at once.
func (u *unfolding) declaration(n *yaml.Node) (declaration, misplacedAll) {
	d := declaration{file: u.file, line: max(n.Line, 1), node: follow(n), members: make(members)}
	if d.node.Kind != yaml.MappingNode {
		return d, gathered(u.fault(n, "must be a job: keys and values, such as name: hello"))
	}
	all, err := u.members(d.node)
	if err != nil {
		return d, gathered(err)
	}
	var faults misplacedAll
	for _, m := range all {
		f, known := fieldNamed(m.name)
		if slices.Contains(shownFields, m.name) {
			continue
		}
		if !known {
			faults = append(faults, gathered(u.fault(m.key, "%s", unknownField(m.name)))...)
			continue
		}
		value, err := u.fieldValue(f, m.value)
		if err != nil {
			faults = append(faults, gathered(err)...)
		} else if value != nil {
			d.members[f.name] = value
		}
	}
	if name, ok := d.members["name"]; ok && json.Unmarshal(name, &d.name) == nil {
		d.name = strings.TrimSpace(d.name)
	}
	return d, faults
}

// fieldValue gives a field as JSON, or nil if it is not set.
func (u *unfolding) fieldValue(f field, n *yaml.Node) (json.RawMessage, error) {
	value := follow(n)
	if value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null" {
		return nil, nil
	}
	switch f.kind {
	case text:
		if value.Kind != yaml.ScalarNode {
			return nil, u.fault(n, "%s: must be text", f.name)
		}
		return json.RawMessage(quote(value.Value)), nil
	case texts:
		return u.textList(f.name, n)
	}
	raw, err := u.json(n)
	if m := (misplaced{}); errors.As(err, &m) {
		m.what = f.name + ": " + m.what
		return nil, m
	}
	return raw, err
}

func (u *unfolding) textList(name string, n *yaml.Node) (json.RawMessage, error) {
	list := follow(n)
	if list.Kind != yaml.SequenceNode {
		return nil, u.fault(n, "%s: must be a list, such as [billing, nightly]", name)
	}
	out := make([]string, len(list.Content))
	for i, item := range list.Content {
		value := follow(item)
		if value.Kind != yaml.ScalarNode || value.ShortTag() == "!!null" {
			return nil, u.fault(item, "%s[%d]: must be text", name, i)
		}
		out[i] = quote(value.Value)
	}
	return json.RawMessage("[" + strings.Join(out, ",") + "]"), nil
}

// locate gives the line of a field that the server names, such as
// payload.headers.Accept or tags[2]; of what is not there, that of the nearest
// thing around it.
func (d declaration) locate(path string) int {
	at, n := d.line, d.node
	for path != "" && n != nil {
		n = follow(n)
		if n.Kind == yaml.SequenceNode {
			number, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
			i, err := strconv.Atoi(number)
			if !ok || err != nil || i < 0 || i >= len(n.Content) {
				return at
			}
			n, path = n.Content[i], strings.TrimPrefix(rest, ".")
			at = n.Line
			continue
		}
		key, value, rest := childOf(n, path)
		if key == nil {
			return at
		}
		at, n, path = key.Line, value, rest
	}
	return at
}

// childOf finds the member of a mapping that a path begins with. Keys may have
// dots themselves; the longest that fits is meant.
func childOf(n *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	best := -1
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if len(name) <= best || !strings.HasPrefix(path, name) {
			continue
		}
		after := path[len(name):]
		if after == "" || after[0] == '.' || after[0] == '[' {
			best, key, value, rest = len(name), n.Content[i], n.Content[i+1], strings.TrimPrefix(after, ".")
		}
	}
	return key, value, rest
}

// refused gives the faults that a server found in the job, each with its line. It
// is not ok for failures that are not about the job.
func (d declaration) refused(err error) (faults misplacedAll, ok bool) {
	if exitCode(err) != exitRefused {
		return nil, false
	}
	var answered *client.Error
	if !errors.As(err, &answered) || len(answered.Faults) == 0 {
		for _, l := range explain(err) {
			faults = append(faults, misplaced{d.file, d.line, l})
		}
		return faults, true
	}
	for _, f := range answered.Faults {
		faults = append(faults, misplaced{d.file, d.locate(f.Field), f.Field + ": " + f.Message})
	}
	return faults, true
}
