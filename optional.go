package belfry

import "encoding/json"

// Optional is a value that may be unset where its zero value means something of its
// own: max_retries 0 is no retries, unset is the default. It is comparable.
type Optional[T comparable] struct {
	value T
	set   bool
}

// Some is a set value.
func Some[T comparable](v T) Optional[T] { return Optional[T]{value: v, set: true} }

// Get returns the value and whether it is set.
func (o Optional[T]) Get() (T, bool) { return o.value, o.set }

// Value is the value, or the zero value if it is unset.
func (o Optional[T]) Value() T { return o.value }

// IsZero reports whether the value is unset, which leaves it out of JSON.
func (o Optional[T]) IsZero() bool { return !o.set }

// MarshalJSON writes the value, or null.
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if !o.set {
		return []byte("null"), nil
	}
	return json.Marshal(o.value)
}

// UnmarshalJSON reads a value; null unsets it.
func (o *Optional[T]) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*o = Optional[T]{}
		return nil
	}
	var v T
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*o = Some(v)
	return nil
}

// MustJSON writes v as JSON, for payloads in code. It panics if v has no JSON form.
func MustJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic("belfry: " + err.Error())
	}
	return text
}
