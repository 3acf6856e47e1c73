// Package belfry is the vocabulary of the scheduler: jobs, runs, attempts and their
// results, the requests and answers of the API, and the rules about them that need no
// machine. It imports the standard library only; everything else in the module speaks
// in its terms.
//
// Each thing that travels has one type here, and everything about a field is said on
// the field: its JSON name, a description (doc), an example, its limits (min, max,
// minlen, maxlen, minitems, maxitems, pattern, enum) and its default. The server, the client, the command
// line, the OpenAPI document and the reference page read it from there. In descriptions, code stands in
// single quotes.
package belfry

// DefaultNamespace is the namespace of whatever names none.
const DefaultNamespace = "default"

// DefaultQueue is the queue of a job that names none.
const DefaultQueue = "default"

// Limits on input.
const (
	MaxPayload = 256 << 10 // bytes of a job's payload
	MaxOutput  = 64 << 10  // bytes kept of an attempt's output
	MaxName    = 200       // characters of a job's name
)

// EnumValue is one value of an enumeration and what it means.
type EnumValue struct{ Value, Doc string }

// Enum is a type with a fixed list of values.
type Enum interface{ EnumValues() []EnumValue }
