package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belfry-sh/belfry/internal/schema"
)

// target gives the schema that one stands for: that of a component, or of the
// items of an array.
func (d *Document) target(of *Schema) *Schema {
	switch name, ok := of.component(); {
	case ok:
		found, _ := d.schemas.components.get(name)
		return found
	case of.Items != nil:
		return d.target(of.Items)
	}
	return of
}

// fields lists the members of an object, and below each one those that it has
// itself, down to a number of levels.
func (d *Document) fields(of *Schema, within string, levels int) []referenceField {
	var out []referenceField
	for _, p := range of.Properties {
		field := d.field(within+p.name, p.value)
		field.Inner = within != ""
		for _, name := range of.Required {
			field.Required = field.Required || name == p.name
		}
		out = append(out, field)
		if levels <= 1 {
			continue
		}
		inner, mark := p.value, "."
		if len(inner.AnyOf) > 0 {
			inner = inner.AnyOf[0]
		}
		if inner.Items != nil {
			mark = "[]."
		}
		if target := d.target(inner); target != p.value {
			out = append(out, d.fields(target, within+p.name+mark, levels-1)...)
		}
	}
	return out
}

func (d *Document) field(name string, of *Schema) referenceField {
	field := referenceField{Name: name, About: of.Description, Label: d.label(of)}
	fact := func(name string, values ...string) {
		field.Facts = append(field.Facts, referenceFact{Name: name, Values: values})
	}
	words := func(format string, args ...any) {
		field.Facts = append(field.Facts, referenceFact{Words: fmt.Sprintf(format, args...)})
	}
	if target := d.target(of); len(of.Enum) > 0 {
		fact("one of", of.Enum...)
	} else if len(target.Enum) > 0 {
		fact("one of", target.Enum...)
	}
	switch {
	case of.Minimum != nil && of.Maximum != nil:
		words("from %s to %s", schema.Decimal(*of.Minimum), schema.Decimal(*of.Maximum))
	case of.Minimum != nil:
		words("at least %s", schema.Decimal(*of.Minimum))
	case of.MaxLength > 0:
		words("at most %d characters", of.MaxLength)
	case of.MaxItems > 0:
		words("at most %d items", of.MaxItems)
	}
	if of.Pattern != "" {
		fact("matches", of.Pattern)
	}
	if of.Default != nil {
		fact("default", bareText(of.Default))
	}
	return field
}

// label is a schema in words.
func (d *Document) label(of *Schema) referenceLabel {
	if name, ok := of.component(); ok {
		return referenceLabel{Link: "object-" + name, Text: name}
	}
	switch {
	case len(of.AnyOf) > 0:
		label := d.label(of.AnyOf[0])
		last := of.AnyOf[len(of.AnyOf)-1]
		if name, ok := last.component(); ok {
			label.After += " or " + name
		} else if len(last.Type) > 0 {
			label.After += " or " + last.Type[0]
		} else {
			label.After += " or any"
		}
		return label
	case of.Items != nil:
		label := d.label(of.Items)
		label.Before = "array of " + label.Before
		return label
	case len(of.Type) == 0:
		return referenceLabel{Text: "any"}
	}
	label := referenceLabel{Text: strings.Join(of.Type, " or ")}
	if of.Format != "" {
		label.Text = strings.Replace(label.Text, "string", of.Format, 1)
	}
	if inner, ok := of.Additional.(*Schema); ok {
		values := d.label(inner)
		label = referenceLabel{Before: "object of " + values.Before, Link: values.Link, Text: values.Text, After: values.After}
	}
	return label
}

// bareText is JSON for people: a text without its quotes, all else laid out.
func bareText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && string(value) != "null" {
		return text
	}
	return laid(value)
}
