package store

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/belfry-sh/belfry"
)

// Specs remembers decoded specs by their text: there are far fewer of them than
// jobs. The zero value is ready for use.
type Specs struct {
	mu    sync.RWMutex
	known map[string]belfry.Spec
}

// maxSpecs bounds the memory; a fleet with more distinct specs decodes again.
const maxSpecs = 10_000

// Decode reads the stored text of a spec.
func (c *Specs) Decode(text string) (belfry.Spec, error) {
	c.mu.RLock()
	spec, ok := c.known[text]
	c.mu.RUnlock()
	if ok {
		return spec, nil
	}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return spec, fmt.Errorf("read a spec: %w", err)
	}
	if spec.MissedWindow == "" { // stored before there was a choice
		spec.MissedWindow = belfry.MissedRunOnce
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxSpecs {
		c.known = map[string]belfry.Spec{}
	}
	c.known[text] = spec
	return spec, nil
}

// OrNone reads the spec of a run. A text that cannot be read must not stop the
// runs around it: its run is tried with no retries.
func (c *Specs) OrZero(text string) belfry.Spec {
	spec, err := c.Decode(text)
	if err != nil {
		return belfry.Spec{}
	}
	return spec
}
