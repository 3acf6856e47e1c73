package schema

import "slices"

// Given is the names of the fields that a request sets, also if it sets them to null.
type Given []string

// Has reports whether a field is set.
func (g Given) Has(name string) bool { return slices.Contains(g, name) }
