package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
)

// fieldFlags are the flags for the fields of a type of a request, one for each field. A
// flag has the name of its field with hyphens; a list has a repeatable flag in the
// singular; seconds are given as a duration, without the suffix. The values are kept as
// JSON; the server checks them.
type fieldFlags []*fieldFlag

// addFieldFlags adds the flags for the fields of T that requests may set, except some.
func addFieldFlags[T any](cmd *cobra.Command, except ...string) (set fieldFlags) {
	for _, field := range schema.For[T]().Fields {
		if !field.ReadOnly && !slices.Contains(except, field.Name) {
			set.add(cmd, &fieldFlag{field: field})
		}
	}
	return set
}

// addFilterFlags is addFieldFlags for a filter, in which an instant may be an age.
func addFilterFlags[T any](c *connectionFlags, cmd *cobra.Command) (set fieldFlags) {
	for _, field := range schema.For[T]().Fields {
		set.add(cmd, &fieldFlag{field: field, ages: true})
		if field.Name == "job" {
			_ = cmd.RegisterFlagCompletionFunc("job", c.complete(false, completeJobs)) // The flag exists.
		}
	}
	return set
}

func (s *fieldFlags) add(cmd *cobra.Command, f *fieldFlag) {
	f.stdin = cmd.InOrStdin
	if f.flag = cmd.Flags().VarPF(f, f.name(), "", f.usage()); f.field.Kind == schema.Bool {
		f.flag.NoOptDefVal = "true"
	}
	*s = append(*s, f)
	if f.ages && f.field.Name == "job" {
		return
	}
	completeFlag(cmd, f.flag.Name, mapSlice(f.field.Enum, func(e belfry.EnumValue) cobra.Completion {
		return cobra.CompletionWithDesc(e.Value, unquote(e.Doc))
	})...)
}

func (s fieldFlags) names() []string {
	return mapSlice(s, func(f *fieldFlag) string { return f.flag.Name })
}

// changedFlag is the name of a flag that was given; empty if none was.
func (s fieldFlags) changedFlag() string {
	for _, f := range s {
		if f.flag.Changed {
			return f.flag.Name
		}
	}
	return ""
}

// checkNotEmpty refuses a filter without a value, which would match everything.
func (s fieldFlags) checkNotEmpty() error {
	for _, f := range s {
		if f.flag.Changed && slices.Contains(f.texts, "") {
			return usagef("--%s: is empty; omit it, or give it a value", f.flag.Name)
		}
	}
	return nil
}

// object is the JSON object of the fields whose flags were given.
func (s fieldFlags) object() members {
	out := members{}
	for _, f := range s {
		if f.flag.Changed {
			out[f.field.Name] = f.value()
		}
	}
	return out
}

// decode sets the fields of a struct whose flags were given. The server checks them.
func (s fieldFlags) decode(into any) error { return s.decodeNamed("", into) }

// decodeNamed is decode for what an argument names.
func (s fieldFlags) decodeNamed(name string, into any) error {
	fields := s.object()
	if name != "" {
		fields["name"] = json.RawMessage(jsontext.Quote(name))
	}
	_, errs, _ := schema.Decoder{}.Decode(belfry.MustJSON(fields), into) // It is an object.
	return s.usageErrors(errs)
}

// decodePeriod is decode for a filter with two instants, of which the first must be
// earlier. No flag may be empty.
func (s fieldFlags) decodePeriod(into any) error {
	var period struct{ Since, Until time.Time }
	_ = json.Unmarshal(belfry.MustJSON(s.object()), &period) // They were parsed before.
	err := cmp.Or(s.checkNotEmpty(), s.decode(into))
	if err == nil && !period.Until.IsZero() && !period.Since.Before(period.Until) {
		err = usagef("--until: must be after --since")
	}
	return err
}

// decodeChecked is decode for fields that no server checks.
func (s fieldFlags) decodeChecked(into any) error {
	return cmp.Or(s.decode(into), s.usageErrors(schema.Check(into)))
}

// usageErrors makes a usage error of errors about fields that have flags.
func (s fieldFlags) usageErrors(fields []belfry.FieldError) error {
	for _, e := range fields {
		for _, f := range s {
			if e.Field == f.field.Name {
				return usagef("--%s: %s", f.flag.Name, e.Message)
			}
		}
	}
	return nil
}

type members map[string]json.RawMessage

type fieldFlag struct {
	field  *schema.Field
	flag   *pflag.Flag
	ages   bool             // instants may be ages
	stdin  func() io.Reader // for @-
	texts  []string         // as given
	values [][]byte         // JSON
}

// flagValueError is what is wrong with the value of a flag. It follows the value.
type flagValueError struct{ message string }

func (e flagValueError) Error() string { return e.message }

const secondsSuffix = "_seconds"

func (f *fieldFlag) name() string {
	name := f.field.Name
	if f.isDuration() {
		name = strings.TrimSuffix(name, secondsSuffix)
	}
	if f.repeatable() {
		name = strings.TrimSuffix(name, "s")
	}
	return strings.ReplaceAll(name, "_", "-")
}

func (f *fieldFlag) isDuration() bool {
	return (f.field.Kind == schema.Int || f.field.Kind == schema.Float) && strings.HasSuffix(f.field.Name, secondsSuffix)
}

func (f *fieldFlag) isDurations() bool { return f.field.Type == reflect.TypeFor[belfry.Delays]() }

func (f *fieldFlag) repeatable() bool {
	return f.field.Kind == schema.Texts || f.field.Kind == schema.TextMap
}

// Type names the type of the value in the help.
func (f *fieldFlag) Type() string {
	switch {
	case f.isDuration():
		return "duration"
	case f.isDurations():
		return "durations"
	}
	names := map[schema.Kind]string{schema.Int: "int", schema.Float: "float", schema.Raw: "json", schema.TextMap: "name=value", schema.Time: "time", schema.Bool: "bool"}
	return cmp.Or(names[f.field.Kind], "string")
}

func (f *fieldFlag) String() string { return strings.Join(f.texts, ",") }

func (f *fieldFlag) Set(text string) error {
	value, err := f.parse(text)
	if err != nil {
		return err
	}
	if !f.repeatable() {
		f.texts, f.values = nil, nil
	}
	f.texts, f.values = append(f.texts, text), append(f.values, value)
	return nil
}

// value is what was given, as JSON.
func (f *fieldFlag) value() json.RawMessage {
	if !f.repeatable() {
		return f.values[0]
	}
	list := bytes.Join(f.values, []byte(","))
	if f.field.Kind == schema.TextMap {
		return slices.Concat([]byte("{"), list, []byte("}"))
	}
	return slices.Concat([]byte("["), list, []byte("]"))
}

// parse returns JSON. Where an error says no more, flagTypes says what is expected.
func (f *fieldFlag) parse(text string) (json.RawMessage, error) {
	switch {
	case f.isDuration() && text != "" && text == f.field.Zero:
		return json.RawMessage("0"), nil
	case f.isDuration():
		d, ok := parseAge(text) // which knows days
		var err error
		if !ok {
			d, err = time.ParseDuration(text)
		}
		if f.field.Kind == schema.Int && d%time.Second != 0 {
			return nil, flagValueError{"is not a whole number of seconds"}
		}
		return json.RawMessage(schema.Decimal(d.Seconds())), err
	case f.isDurations():
		return parseDurations(text)
	case f.field.Kind == schema.Int:
		n, err := strconv.Atoi(text)
		return json.RawMessage(strconv.Itoa(n)), err
	case f.field.Kind == schema.Bool:
		yes, err := strconv.ParseBool(text)
		return json.RawMessage(strconv.FormatBool(yes)), err
	case f.field.Kind == schema.Float:
		n, err := strconv.ParseFloat(text, 64)
		if math.IsNaN(n) || math.IsInf(n, 0) {
			err = strconv.ErrRange
		}
		return json.RawMessage(schema.Decimal(n)), err
	case f.field.Kind == schema.Raw:
		return readJSON(text, f.stdin())
	case f.field.Kind == schema.TextMap:
		at := strings.IndexAny(text, "=:")
		if at < 1 {
			return nil, flagValueError{"is not NAME=VALUE"}
		}
		return json.RawMessage(jsontext.Quote(strings.TrimSpace(text[:at])) + ":" + jsontext.Quote(strings.TrimSpace(text[at+1:]))), nil
	case f.field.Kind == schema.Time && f.ages && text != "":
		at, err := parseTimeOrAge(text, time.Now())
		if err != nil {
			return nil, flagValueError{"is neither an instant such as 2027-03-01T09:00:00+01:00 nor an age such as 24h or 7d"}
		}
		return json.RawMessage(jsontext.Quote(at.Format(time.RFC3339Nano))), nil
	}
	return json.RawMessage(jsontext.Quote(text)), nil
}

func parseDurations(text string) (json.RawMessage, error) {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(part))
		if err != nil {
			return nil, flagValueError{"is not a list of durations such as 1s,10s,1m"}
		}
		list = append(list, schema.Decimal(d.Seconds()))
	}
	return json.RawMessage("[" + strings.Join(list, ",") + "]"), nil
}

// readJSON reads JSON, or a file of it after @; the file - is standard input.
func readJSON(text string, stdin io.Reader) (json.RawMessage, error) {
	content := []byte(text)
	if path, isFile := strings.CutPrefix(text, "@"); isFile || text == "-" {
		var err error
		if content, err = readFile(path, stdin); err != nil {
			return nil, pathError(err)
		}
	}
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New("is empty")
	}
	if err := jsontext.Check(content); err != nil {
		return nil, fmt.Errorf("%w; a string needs its quotes, as in '\"hello\"'", err)
	}
	return content, nil
}

// usage is the first sentence of the description with the values and the default.
func (f *fieldFlag) usage() string {
	sentences := strings.SplitAfter(unquote(f.field.Doc), ". ")
	text := strings.TrimSuffix(strings.TrimSpace(sentences[0]), ".")
	if first := []rune(text); len(first) > 1 && !unicode.IsUpper(first[1]) { // not "IANA"
		text = strings.ToLower(string(first[:1])) + string(first[1:])
	}
	choices := mapSlice(f.field.Enum, func(e belfry.EnumValue) string { return e.Value })
	if slices.ContainsFunc(choices, func(choice string) bool { return !strings.Contains(text, choice) }) {
		text += ": " + strings.Join(choices, ", ")
	}
	switch {
	case f.isDurations():
		text = strings.Replace(text, " in seconds", " such as 1s,10s,1m", 1)
	case f.repeatable() && !strings.Contains(text, "repeated"):
		text += "; may be repeated"
	case f.field.Kind == schema.Raw:
		text += "; JSON, or @FILE"
	case f.field.Kind == schema.Time && f.ages:
		text += ", or an age such as 24h or 7d"
	}
	if d := f.defaultText(sentences); d != "" {
		text += " (default " + d + ")"
	}
	return text
}

func (f *fieldFlag) defaultText(sentences []string) string {
	if value := cmp.Or(f.field.Default, f.field.Implicit); value != "" && f.isDuration() {
		seconds, _ := strconv.ParseFloat(value, 64) // checked by the tests of the tags
		return secondsText(seconds)
	}
	described := ""
	for _, s := range sentences {
		if text, ok := strings.CutPrefix(s, "Default: "); ok {
			described = strings.TrimSuffix(strings.TrimSpace(text), ".")
		}
	}
	return cmp.Or(f.field.Default, described, f.field.Implicit, f.field.Zero)
}

// unquote removes the single quotes around code in a description.
func unquote(doc string) string { return strings.ReplaceAll(doc, "'", "") }
