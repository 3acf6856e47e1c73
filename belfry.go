// Package belfry names the things a scheduler is about: jobs, their runs and
// results, and the rules about them that need no machine. It imports the
// standard library only; everything else in the module speaks in its terms.
package belfry

// DefaultNamespace is the namespace of whatever names none.
const DefaultNamespace = "default"

// DefaultQueue is the queue of a job that names none.
const DefaultQueue = "default"

// Limits on what people may hand in.
const (
	MaxPayload = 256 << 10 // bytes of a job's payload
	MaxOutput  = 64 << 10  // bytes kept of what an attempt answered
	MaxName    = 200       // characters of a job's name
)
