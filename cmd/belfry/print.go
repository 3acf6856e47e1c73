package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// print shows an answer of the server: as it is, or as a table for people.
func (d *door) print(answer any, table func() error) error {
	if d.format == "table" {
		return table()
	}
	text, err := render(answer, d.format)
	if err != nil {
		return err
	}
	_, err = d.out.Write(text)
	return err
}

// render writes an answer as JSON or as YAML.
func render(answer any, format string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(answer); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	if format != "yaml" {
		return safeJSON(b.Bytes()), nil
	}
	node, err := nodeOfJSON(b.Bytes())
	if err != nil {
		return nil, err
	}
	return encodeYAML(node)
}

// safeJSON shows hidden characters, which JSON has in texts only, by their codes.
// It means the same.
func safeJSON(content []byte) []byte {
	if bytes.IndexFunc(content, func(r rune) bool { return r != '\n' && hidden(r) }) < 0 {
		return content
	}
	var b bytes.Buffer
	for len(content) > 0 {
		r, size := utf8.DecodeRune(content)
		switch {
		case r == '\n' || !hidden(r):
			b.WriteRune(r)
		case r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		content = content[size:]
	}
	return b.Bytes()
}

// printAll prints the answers about the things that a command was asked for, for
// programs: one stands for itself, of several there is a list.
func printAll[T any](d *door, asked int, answers []T, failed error) error {
	if d.format == "table" || len(answers) == 0 {
		return failed
	}
	var all any = answers
	if asked == 1 {
		all = answers[0]
	}
	if err := d.print(all, nil); err != nil {
		return err
	}
	return failed
}

// line prints a line of data.
func line(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format+"\n", args...)
	return err
}
