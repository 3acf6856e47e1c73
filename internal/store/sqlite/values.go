package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// micro is how an instant is stored.
func micro(t time.Time) int64 { return t.UnixMicro() }

// stamp is null for the zero time.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// text is null for the empty string.
func text[T ~string | ~[]byte](s T) any {
	if len(s) == 0 {
		return nil
	}
	return string(s)
}

// aDay is how long a day of retention is, in microseconds.
const aDay = int64(24 * time.Hour / time.Microsecond)

// keepDays is null for no retention of a job's own.
func keepDays(days int) any {
	if days <= 0 {
		return nil
	}
	return int64(days)
}

// keepUntil is when a retention of a job's own ends that begins now; null without
// one.
func keepUntil(now time.Time, days int) any {
	if days <= 0 {
		return nil
	}
	return micro(now) + int64(days)*aDay
}

// tagList is how tags are stored: sorted, each once, null for none.
func tagList(tags []string) any {
	if len(tags) == 0 {
		return nil
	}
	out, err := json.Marshal(slices.Compact(slices.Sorted(slices.Values(tags))))
	if err != nil { // a list of strings can always be written
		return nil
	}
	return string(out)
}

// list is a parameter for json_each.
func list(shards []int) string {
	out := []byte{'['}
	for i, shard := range shards {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(shard), 10)
	}
	return string(append(out, ']'))
}

// atMost is a LIMIT; SQLite takes a negative one for none.
func atMost(limit int) int64 { return int64(max(limit, 0)) }

// moment reads an instant; null is the zero time.
type moment struct{ to *time.Time }

func (m moment) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*m.to = time.Time{}
	case int64:
		*m.to = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("%T is not an instant", v)
	}
	return nil
}

// maybe reads an instant that may be null.
type maybe struct{ to **time.Time }

func (m maybe) Scan(v any) error {
	if v == nil {
		*m.to = nil
		return nil
	}
	var at time.Time
	*m.to = &at
	return moment{&at}.Scan(v)
}

// key reads the 16 bytes of an id or token; null is the zero one.
type key struct{ to []byte }

func (k key) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		clear(k.to)
	case []byte:
		if copy(k.to, v) != len(v) || len(v) != len(k.to) {
			return fmt.Errorf("%d bytes are not an id", len(v))
		}
	default:
		return fmt.Errorf("%T is not an id", v)
	}
	return nil
}

// tags reads what tagList wrote.
type tags struct{ to *[]string }

func (l tags) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*l.to = nil
	case string:
		return json.Unmarshal([]byte(v), l.to)
	default:
		return fmt.Errorf("%T is not a list of tags", v)
	}
	return nil
}

// payload reads JSON that may be null.
type payload struct{ to *json.RawMessage }

func (p payload) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*p.to = nil
	case string:
		*p.to = json.RawMessage(v)
	default:
		return fmt.Errorf("%T is not a payload", v)
	}
	return nil
}
