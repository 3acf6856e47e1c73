package main

import (
	"errors"

	"github.com/spf13/pflag"
)

// expected says what the value of a flag is, by its type.
var expected = map[string]string{
	"int":      "a whole number",
	"float64":  "a number such as 0.5",
	"duration": "a length of time such as 30s, 10m or 2h",
	"bool":     "true or false",
}

// flagError is a mistake in the flags, told in the words of those who give them.
func flagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return usageError{err}
	}
	if want := expected[bad.GetFlag().Value.Type()]; want != "" {
		return usagef("--%s: %q is not %s", bad.GetFlag().Name, bad.GetValue(), want)
	}
	return usageError{err}
}
