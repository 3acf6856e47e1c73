package jsontext

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Append appends the JSON form of a value exactly as json.Marshal writes it, given a pointer
// to the value, in half the time for lists of structs. Types that it does not know are left
// to json.Marshal.
func Append(b []byte, v any) ([]byte, error) {
	value := reflect.ValueOf(v)
	if !value.IsValid() {
		return append(b, "null"...), nil
	}
	if value.Kind() == reflect.Pointer && !value.IsNil() {
		value = value.Elem()
	} else { // encoders need a value that has an address
		value = reflect.New(value.Type()).Elem()
		value.Set(reflect.ValueOf(v))
	}
	return encoderOf(value.Type())(b, value)
}

type encoder func(b []byte, v reflect.Value) ([]byte, error)

var encoders sync.Map // reflect.Type to encoder

var (
	marshaler    = reflect.TypeFor[json.Marshaler]()
	textAppender = reflect.TypeFor[encoding.TextAppender]()
	textMarshal  = reflect.TypeFor[encoding.TextMarshaler]()
	instant      = reflect.TypeFor[time.Time]()
	rawMessage   = reflect.TypeFor[json.RawMessage]()
)

func encoderOf(t reflect.Type) encoder {
	if known, ok := encoders.Load(t); ok {
		return known.(encoder)
	}
	known, _ := encoders.LoadOrStore(t, newEncoder(t))
	return known.(encoder)
}

func newEncoder(t reflect.Type) encoder {
	switch {
	case t == instant:
		return encodeTime
	case t == rawMessage:
		return encodeRaw
	case reflect.PointerTo(t).Implements(marshaler):
		return encodeOther
	case t.Implements(textAppender) && t.Kind() == reflect.Array: // an identifier, whose text needs no escapes
		return encodeText
	case reflect.PointerTo(t).Implements(textMarshal):
		return encodeOther
	}
	switch t.Kind() {
	case reflect.String:
		return func(b []byte, v reflect.Value) ([]byte, error) { return AppendQuote(b, v.String()), nil }
	case reflect.Bool:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendBool(b, v.Bool()), nil }
	case reflect.Int, reflect.Int32, reflect.Int64:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendInt(b, v.Int(), 10), nil }
	case reflect.Struct:
		if fields, ok := structFields(t); ok {
			return structEncoder(fields)
		}
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 { // bytes are base64
			return sliceEncoder(lazyEncoder(t.Elem()))
		}
	case reflect.Pointer:
		return pointerEncoder(lazyEncoder(t.Elem()))
	}
	return encodeOther
}

// lazyEncoder finds an encoder when it is used, since types may contain themselves.
func lazyEncoder(t reflect.Type) func() encoder {
	return sync.OnceValue(func() encoder { return encoderOf(t) })
}

func encodeOther(b []byte, v reflect.Value) ([]byte, error) {
	text, err := json.Marshal(v.Addr().Interface())
	return append(b, text...), err
}

func encodeTime(b []byte, v reflect.Value) ([]byte, error) {
	b, err := v.Addr().Interface().(*time.Time).AppendText(append(b, '"'))
	return append(b, '"'), err
}

func encodeText(b []byte, v reflect.Value) ([]byte, error) {
	b, err := v.Addr().Interface().(encoding.TextAppender).AppendText(append(b, '"'))
	return append(b, '"'), err
}

// encodeRaw copies a text that json.Marshal would copy unchanged: it leaves out white
// space, and escapes some characters.
func encodeRaw(b []byte, v reflect.Value) ([]byte, error) {
	text := v.Bytes()
	for _, c := range text {
		if c <= ' ' || c == '<' || c == '>' || c == '&' || c >= utf8.RuneSelf {
			return encodeOther(b, v)
		}
	}
	if !valid(text) {
		return encodeOther(b, v)
	}
	return append(b, text...), nil
}

// AppendQuote appends a string as json.Marshal writes it.
func AppendQuote(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c >= utf8.RuneSelf {
			text, _ := json.Marshal(s) // a string always has a JSON form
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func pointerEncoder(elem func() encoder) encoder {
	return func(b []byte, v reflect.Value) ([]byte, error) {
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		return elem()(b, v.Elem())
	}
}

func sliceEncoder(elem func() encoder) encoder {
	return func(b []byte, v reflect.Value) (_ []byte, err error) {
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		encode := elem()
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = encode(b, v.Index(i)); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	}
}

func structEncoder(fields []field) encoder {
	return func(b []byte, v reflect.Value) (_ []byte, err error) {
		start := len(b)
		for i := range fields {
			f := &fields[i]
			value := f.of(v)
			if f.omitEmpty && isEmpty(value) || f.omitZero && isZero(value) {
				continue
			}
			if b, err = f.encoder()(append(b, f.start...), value); err != nil {
				return b, err
			}
		}
		if len(b) == start {
			return append(b, "{}"...), nil
		}
		b[start] = '{' // instead of a comma
		return append(b, '}'), nil
	}
}

// isEmpty is what omitempty means.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// isZero is what omitzero means.
func isZero(v reflect.Value) bool {
	if z, ok := v.Addr().Interface().(interface{ IsZero() bool }); ok && v.Kind() != reflect.Pointer {
		return z.IsZero()
	}
	return v.IsZero()
}

// field is a field of a struct that has a JSON name.
type field struct {
	name                string
	start               string // a comma, the name and a colon
	index               []int
	omitEmpty, omitZero bool
	encoder             func() encoder
	decoder             func() decoder
}

func (f *field) of(v reflect.Value) reflect.Value {
	for _, i := range f.index {
		v = v.Field(i)
	}
	return v
}

// structFields lists the fields of a struct and of those embedded in it. It is not ok if
// only encoding/json knows what they mean.
func structFields(t reflect.Type) (fields []field, ok bool) {
	names := map[string]bool{}
	var gather func(t reflect.Type, index []int) bool
	gather = func(t reflect.Type, index []int) bool {
		for i := range t.NumField() {
			sf := t.Field(i)
			at := append(index[:len(index):len(index)], i)
			name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
			switch {
			case name == "-" && options == "" || !sf.IsExported() && !sf.Anonymous:
				continue
			case sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct:
				if !gather(sf.Type, at) {
					return false
				}
				continue
			case sf.Anonymous:
				return false
			case name == "":
				name = sf.Name
			}
			f := field{name: name, start: "," + string(AppendQuote(nil, name)) + ":", index: at, encoder: lazyEncoder(sf.Type), decoder: lazyDecoder(sf.Type)}
			for option := range strings.SplitSeq(options, ",") {
				switch option {
				case "":
				case "omitempty":
					f.omitEmpty = true
				case "omitzero":
					f.omitZero = true
				default:
					return false
				}
			}
			if names[strings.ToLower(name)] || strings.ContainsAny(name, `\"`) {
				return false
			}
			names[strings.ToLower(name)] = true
			fields = append(fields, f)
		}
		return true
	}
	return fields, gather(t, nil)
}
