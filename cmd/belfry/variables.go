package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
)

// variables substitutes environment variables in the values of files, or finds values
// that somebody may expect it for.
type variables struct {
	substitute bool
	unchanged  []string // without substitute: where values have references
}

// reference is ${NAME} or the beginning of anything similar; after $ it is a text.
var reference = regexp.MustCompile(`\$?\$\{(?:[A-Za-z_][A-Za-z0-9_]*\})?`)

// expand replaces ${NAME} by the value of a variable, into which it does not look, and
// $${ by ${. It returns what is wrong with references that cannot be replaced.
func expand(text string, lookup func(name string) (string, bool)) (expanded string, wrong []string) {
	expanded = reference.ReplaceAllStringFunc(text, func(ref string) string {
		name, complete := strings.CutSuffix(strings.TrimPrefix(ref, "${"), "}")
		value, isSet := lookup(name)
		switch {
		case strings.HasPrefix(ref, "$$"):
			return ref[1:]
		case !complete:
			wrong = append(wrong, "after ${ there must be the name of an environment variable and }, as in ${TOKEN}; write $${ for the text ${ itself")
		case !isSet:
			wrong = append(wrong, "the environment variable "+name+" is not set; for the text "+ref+" itself write $"+ref)
		}
		return value
	})
	return expanded, wrong
}

// noteVariables says where values have references that are not substituted.
func (c *cli) noteVariables(v *variables) {
	for _, where := range v.unchanged {
		c.message("Note: %s; substitute environment variables with: belfry job apply --env", where)
	}
}

// expandNode returns a string of a file with its variables. It stays a string, whatever
// their values are, except that a field that is a number may be one.
func (y *yamlToJSON) expandNode(n *yaml.Node, path string) *yaml.Node {
	if !y.variables.substitute {
		where := fileError{y.file, max(n.Line, 1), path + ": " + reference.FindString(n.Value) + " is not substituted"}
		y.variables.unchanged = append(y.variables.unchanged, where.text())
		return n
	}
	value, wrong := expand(n.Value, os.LookupEnv)
	for _, message := range wrong {
		y.wrong = append(y.wrong, y.errorf(n, "%s: %s", path, message)...)
	}
	y.expanded[path] = true
	field := schema.For[belfry.Manifest]().Field(path)
	if isNumber := field != nil && (field.Kind == schema.Int || field.Kind == schema.Float); isNumber && jsonNumber.MatchString(value) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: value, Line: n.Line}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Line: n.Line, Style: yaml.DoubleQuotedStyle}
}

// mask hides values of variables, which may be secrets, in the changes of a job.
func (m manifest) mask(changes []belfry.FieldChange) {
	for i, c := range changes {
		changes[i].Old, changes[i].New = m.maskValue(c.Field, c.Old), m.maskValue(c.Field, c.New)
	}
}

// maskValue hides values of variables in the value at a path. The server may have sorted
// a list, so that all of it is hidden.
func (m manifest) maskValue(path string, value json.RawMessage) json.RawMessage {
	isList := len(value) > 0 && value[0] == '['
	for expanded := range m.expanded {
		if value != nil && (expanded == path || isList && strings.HasPrefix(expanded, path+"[")) {
			return belfry.MustJSON(secret.Masked)
		}
	}
	if len(m.expanded) == 0 || len(value) == 0 || value[0] != '{' {
		return value
	}
	var parts []string
	jsontext.Members(value, func(quoted, inner []byte) bool {
		parts = append(parts, string(quoted)+":"+string(m.maskValue(path+"."+jsontext.Unquote(quoted), inner)))
		return true
	})
	return json.RawMessage("{" + strings.Join(parts, ",") + "}")
}
