package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfry-sh/belfry/internal/schedule"
)

// oneOf takes one of a few words, in any case; empty is none.
func oneOf(word string, known []string) (string, error) {
	if lower := strings.ToLower(word); word == "" || slices.Contains(known, lower) {
		return lower, nil
	}
	return "", fmt.Errorf("%q is not one of %s", word, strings.Join(known, ", "))
}

// badSchedule is that an expression is refused.
type badSchedule struct {
	text string
	err  error
}

func (e *badSchedule) Error() string { return e.err.Error() }
func (e *badSchedule) Unwrap() error { return e.err }

// lines shows what is wrong, where, and what is right.
func (e *badSchedule) lines() []string {
	var refused *schedule.Error
	if !errors.As(e.err, &refused) {
		return []string{safe(e.err.Error())}
	}
	message := refused.Message
	if refused.Column > 0 {
		message = fmt.Sprintf("column %d: %s", refused.Column, message)
	} else if refused.Field == "timezone" {
		message = "--timezone: " + message
	}
	lines := []string{safe(message)}
	if refused.Column > 0 {
		lines = append(lines, pointAt(e.text, refused.Column)...)
	}
	if refused.Example != "" {
		lines = append(lines, "For example: "+safe(refused.Example))
	}
	return lines
}

// pointAt shows the line of a text that has a column, counted in bytes from 1, and
// a caret below it. Of a long line it shows the part around.
func pointAt(text string, column int) []string {
	const around = 50
	at := min(column-1, len(text))
	begin := strings.LastIndexByte(text[:at], '\n') + 1
	end := len(text)
	if n := strings.IndexByte(text[at:], '\n'); n >= 0 {
		end = at + n
	}
	before, after := []rune(safe(text[begin:at])), []rune(safe(text[at:end]))
	if len(before) > around {
		before = append([]rune("..."), before[len(before)-around:]...)
	}
	if len(after) > around {
		after = append(after[:around:around], []rune("...")...)
	}
	blanks := strings.Repeat(" ", utf8.RuneCountInString(string(before)))
	return []string{"    " + string(before) + string(after), "    " + blanks + "^"}
}
