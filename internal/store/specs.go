package store

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/belfry-sh/belfry"
)

// DecodeSpec decodes the stored text of a spec.
func DecodeSpec(text string) (spec belfry.Spec, err error) {
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return spec, fmt.Errorf("decode a spec: %w", err)
	}
	return spec, nil
}

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
	spec, err := DecodeSpec(text)
	if err != nil {
		return spec, err
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

// SpecEncoder encodes specs as they are stored. Jobs that are created together often
// have the same spec, which is encoded once. The zero value is ready for use.
type SpecEncoder struct {
	spec belfry.Spec
	text string
}

// Encode returns the text that Decode reads.
func (e *SpecEncoder) Encode(spec belfry.Spec) (string, error) {
	if e.text == "" || e.spec != spec {
		text, err := json.Marshal(spec)
		if err != nil {
			return "", fmt.Errorf("encode a spec: %w", err)
		}
		e.spec, e.text = spec, string(text)
	}
	return e.text, nil
}
