package belfry

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Limits on a list of delays.
const (
	MaxDelays = 100
	MaxDelay  = 7 * 24 * time.Hour
)

// Delays is a list of waits in seconds, as numbers with commas between them. In
// JSON it is a list of numbers. It is text so that specs can be compared.
type Delays string

// NewDelays makes the list, or says what is wrong with it in words that fit behind
// the name of a field. No seconds make no list.
func NewDelays(seconds []float64) (Delays, error) {
	if len(seconds) > MaxDelays {
		return "", fmt.Errorf("has %d delays, the most is %d", len(seconds), MaxDelays)
	}
	parts := make([]string, len(seconds))
	for i, s := range seconds {
		if !(s >= 0 && s <= MaxDelay.Seconds()) {
			return "", fmt.Errorf("has %s, and a delay is from 0 to %.0f seconds", strconv.FormatFloat(s, 'f', -1, 64), MaxDelay.Seconds())
		}
		parts[i] = strconv.FormatFloat(s, 'f', -1, 64)
	}
	return Delays(strings.Join(parts, ",")), nil
}

// Seconds gives the list as numbers.
func (d Delays) Seconds() []float64 {
	if d == "" {
		return nil
	}
	var out []float64
	for part := range strings.SplitSeq(string(d), ",") {
		s, err := strconv.ParseFloat(part, 64)
		if err != nil || math.IsNaN(s) {
			s = 0
		}
		out = append(out, s)
	}
	return out
}

// at is the delay at an index; beyond the last it is the last.
func (d Delays) at(i int) time.Duration {
	list := d.Seconds()
	if len(list) == 0 {
		return 0
	}
	return time.Duration(list[min(i, len(list)-1)] * float64(time.Second))
}

// MarshalJSON writes a list of numbers.
func (d Delays) MarshalJSON() ([]byte, error) { return []byte("[" + string(d) + "]"), nil }

// UnmarshalJSON reads a list of numbers.
func (d *Delays) UnmarshalJSON(text []byte) error {
	var seconds []float64
	if err := json.Unmarshal(text, &seconds); err != nil {
		return err
	}
	list, err := NewDelays(seconds)
	if err != nil {
		return fmt.Errorf("a list of delays %w", err)
	}
	*d = list
	return nil
}
