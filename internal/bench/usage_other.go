//go:build !unix

package bench

import "time"

// cpuTime is the processor time that this process has used; it is not known here.
func cpuTime() time.Duration { return 0 }
