package schema

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
)

// set sets a field to a JSON value.
func (s *state) set(f *Field, v reflect.Value, value []byte, path string) {
	switch string(value) {
	case "null":
		v.SetZero()
		return
	case `""`:
		if f.Kind != Raw && f.Kind != Bool {
			v.SetZero()
			return
		}
	}
	switch f.Kind {
	case Raw:
		v.SetBytes(value)
	case Texts:
		s.setTexts(f, v, value, path)
	case Custom:
		if s.hasNull(value, path) {
			return
		}
		if err := v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(value); err != nil {
			s.fail(path, "%s", err)
		}
	case Object:
		s.setObject(f.Elem, v, value, path)
	case Objects:
		s.setObjects(f, v, value, path)
	case TextMap:
		s.setTextMap(v, value, path)
	default:
		s.setScalar(f, v, value, path)
	}
}

// hasNull refuses elements of an array that are null, which encoding/json would take for
// zero.
func (s *state) hasNull(value []byte, path string) (found bool) {
	if value[0] != '[' {
		return false
	}
	for i, element := range jsontext.Elements(value) {
		if string(element) == "null" {
			s.fail(fmt.Sprintf("%s[%d]", path, i), "must not be null")
			found = true
		}
	}
	return found
}

// setScalar sets a field whose value is one string, number or boolean.
func (s *state) setScalar(f *Field, v reflect.Value, value []byte, path string) {
	kind := jsontext.Kind(value)
	if kind != jsonKinds[f.Kind] {
		s.fail(path, "must be %s, not %s", kindNames[f.Kind], kind)
		return
	}
	text := string(value)
	if kind == "a string" {
		text = jsontext.Unquote(value)
	}
	if err := f.setOne(v, text); err != nil {
		s.fail(path, "%s", err)
	}
}

// What kinds are in JSON, and how errors name them.
var (
	jsonKinds = [TextMap + 1]string{Text: "a string", Time: "a string", ID: "a string", Token: "a string", Int: "a number", Float: "a number", Bool: "a boolean"}
	kindNames = [TextMap + 1]string{Text: "a string", Time: "a string", ID: "a UUID", Token: "a token", Int: "a whole number", Float: "a number", Bool: "true or false"}
)

// SetText sets a field to what a text says, as queries and flags have it. The error
// follows the name of the field.
func (f *Field) SetText(v reflect.Value, text string) error {
	switch f.Kind {
	case Custom:
		return v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON([]byte(jsontext.Quote(text)))
	case Time:
		text = strings.Replace(text, " ", "+", 1) // a plus sign that was not encoded
	}
	return f.setOne(v, text)
}

// setOne sets a field of one value to what a text says.
func (f *Field) setOne(v reflect.Value, text string) error {
	switch f.Kind {
	case Text:
		v.SetString(text)
	case Bool:
		if text != "true" && text != "false" {
			return errors.New("must be true or false")
		}
		v.SetBool(text == "true")
	case Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("must be a whole number, not %.40s", text)
		}
		if err := f.checkZero(float64(n)); err != nil {
			return err
		}
		if o, ok := v.Addr().Interface().(*belfry.Optional[int]); ok {
			*o = belfry.Some(n)
		} else {
			v.SetInt(int64(n))
		}
	case Float:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("must be a number, not %.40s", text)
		}
		if err := f.checkZero(n); err != nil {
			return err
		}
		if o, ok := v.Addr().Interface().(*belfry.Optional[float64]); ok {
			*o = belfry.Some(n)
		} else {
			v.SetFloat(n)
		}
	case Time:
		at, err := ParseTime(text)
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(at))
	case ID, Token:
		if v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)) != nil {
			if f.Kind == Token {
				return errors.New("must be 32 hexadecimal digits")
			}
			return errors.New("must be a UUID")
		}
	default:
		return errors.New("cannot be set here")
	}
	return nil
}

// checkZero refuses a zero that is out of range: once it is set, it is not told from a
// field that is unset.
func (f *Field) checkZero(n float64) error {
	if err := f.checkNumber(n); n == 0 && err != "" {
		return errors.New(err)
	}
	return nil
}

// The years that instants may lie in.
const (
	FirstYear = 1970
	LastYear  = 2499
)

// ErrNoTime is that a text is not an instant.
var ErrNoTime = errors.New(`must be an instant with an offset or Z, for example "2027-03-01T09:00:00+01:00" or "2027-03-01T08:00:00Z"`)

// ParseTime reads an instant (RFC 3339), to the microsecond. The error follows the name
// of a field.
func ParseTime(text string) (at time.Time, err error) {
	if at.UnmarshalText([]byte(text)) != nil {
		return time.Time{}, ErrNoTime
	}
	at = at.UTC().Truncate(time.Microsecond)
	if err := CheckYear(at); err != nil {
		return time.Time{}, err
	}
	return at, nil
}

func (s *state) setTexts(f *Field, v reflect.Value, value []byte, path string) {
	if f.Single && value[0] == '"' {
		v.Set(reflect.ValueOf([]string{jsontext.Unquote(value)}))
		return
	}
	if value[0] != '[' {
		s.fail(path, "must be an array of strings, not %s", jsontext.Kind(value))
		return
	}
	var list []string
	for i, element := range jsontext.Elements(value) {
		if element[0] != '"' {
			s.fail(fmt.Sprintf("%s[%d]", path, i), "must be a string, not %s", jsontext.Kind(element))
			continue
		}
		list = append(list, jsontext.Unquote(element))
	}
	v.Set(reflect.ValueOf(list))
}

func (s *state) setObject(t *Type, v reflect.Value, value []byte, path string) {
	if value[0] != '{' {
		s.fail(path, "must be an object, not %s", jsontext.Kind(value))
		return
	}
	if path != "" {
		path += "."
	}
	members, ok := s.members(t, value, path)
	if !ok {
		s.fail(strings.TrimSuffix(path, "."), "has more than %d members", maxMembers)
		return
	}
	s.object(Decoder{}, t, v, members)
}

func (s *state) setObjects(f *Field, v reflect.Value, value []byte, path string) {
	if value[0] != '[' {
		s.fail(path, "must be an array of objects, not %s", jsontext.Kind(value))
		return
	}
	elements := jsontext.Elements(value)
	if f.MaxItems > 0 && len(elements) > f.MaxItems {
		s.fail(path, "has %d items, the maximum is %d", len(elements), f.MaxItems)
		return
	}
	list := reflect.MakeSlice(f.Type, len(elements), len(elements))
	for i, element := range elements {
		before := len(s.errors)
		s.setObject(f.Elem, list.Index(i), element, "")
		if s.prefixErrors(before, path, i); len(s.errors) >= maxErrors {
			break
		}
	}
	v.Set(list)
}

func (s *state) setTextMap(v reflect.Value, value []byte, path string) {
	if value[0] != '{' {
		s.fail(path, "must be an object of strings, not %s", jsontext.Kind(value))
		return
	}
	texts := map[string]string{}
	jsontext.Members(value, func(quoted, value []byte) bool {
		name := jsontext.Unquote(quoted)
		if value[0] != '"' {
			s.fail(path+"."+Clip(name), "must be a string, not %s", jsontext.Kind(value))
		} else {
			texts[name] = jsontext.Unquote(value)
		}
		return true
	})
	v.Set(reflect.ValueOf(texts))
}
