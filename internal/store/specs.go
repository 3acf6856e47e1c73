package store

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/belfry-sh/belfry"
)

// Specs caches decoded specs by their text: there are far fewer of them than jobs. The zero value is ready for use.
type Specs struct {
	mu      sync.RWMutex
	decoded map[string]belfry.Spec
}

// maxSpecs bounds the memory; a fleet with more distinct specs decodes again.
const maxSpecs = 10_000

// Decode decodes the stored text of a spec.
func (c *Specs) Decode(text string) (belfry.Spec, error) {
	c.mu.RLock()
	spec, ok := c.decoded[text]
	c.mu.RUnlock()
	if ok {
		return spec, nil
	}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return spec, fmt.Errorf("read a spec: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decoded == nil || len(c.decoded) >= maxSpecs {
		c.decoded = map[string]belfry.Spec{}
	}
	c.decoded[text] = spec
	return spec, nil
}

// OrZero decodes the spec of a run. A text that cannot be decoded must not stop
// other runs: its own run has no retries.
func (c *Specs) OrZero(text string) belfry.Spec {
	spec, err := c.Decode(text)
	if err != nil {
		return belfry.Spec{}
	}
	return spec
}
