package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

// formats are the output formats. A wide table has more columns.
var formats = []string{"table", "wide", "json", "yaml"}

const maxPageSize = 500 // of the server's lists

// output is where and how a command prints. After an error nothing more is printed.
type output struct {
	out     *writer
	err     io.Writer
	format  string
	palette palette
	clips   bool           // long texts in tables are cut, for a terminal
	zone    *time.Location // of absolute times; nil: relative ones in tables, and time zones of jobs
	now     func() time.Time
}

// writer keeps the first error.
type writer struct {
	io.Writer
	err error
}

func (w *writer) Write(p []byte) (n int, err error) {
	if w.err == nil {
		_, w.err = w.Writer.Write(p)
	}
	return len(p), w.err
}

func newOutput(cmd *cobra.Command, format string, noColor bool) output {
	o := output{out: &writer{Writer: cmd.OutOrStdout()}, err: cmd.ErrOrStderr(), format: format, now: time.Now}
	o.clips = isTerminal(cmd.OutOrStdout()) && format != "wide"
	o.palette.on = o.humanReadable() && !noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(cmd.OutOrStdout())
	return o
}

// outputFlags are the flags of commands that print, but use no server.
type outputFlags struct {
	format  string
	noColor bool
}

func addOutputFlags(cmd *cobra.Command) *outputFlags {
	f := &outputFlags{}
	cmd.Flags().StringVarP(&f.format, "output", "o", "table", "output `FORMAT`: "+strings.Join(formats, ", "))
	cmd.Flags().BoolVar(&f.noColor, "no-color", false, "print without colours [NO_COLOR]")
	completeFlag(cmd, "output", formats...)
	return f
}

func (f *outputFlags) open(cmd *cobra.Command) (output, error) {
	return newOutput(cmd, f.format, f.noColor), checkFormat(f.format)
}

// humanReadable reports whether the output is for people and not for programs.
func (o *output) humanReadable() bool { return o.format == "table" || o.format == "wide" }

// printAnswer is print for an answer that a call returned together with an error.
func (o *output) printAnswer(answer any, err error, show func()) error {
	if err != nil {
		return err
	}
	if err := o.print(answer, show); err != nil {
		return err
	}
	if job, ok := answer.(belfry.Job); ok {
		o.warn(job)
	}
	return nil
}

// warn prints what the server warns of about a job, whatever the format of the output is.
func (o *output) warn(job belfry.Job) {
	for _, text := range job.Warnings {
		o.message("%s", escape("Warning: "+jobTitle(job)+": "+text))
	}
}

// print prints an answer of the server: for programs as it is, for people by show.
func (o *output) print(answer any, show func()) error {
	if o.humanReadable() {
		show()
		return o.out.err
	}
	text, err := encode(answer, o.format)
	if err != nil {
		return err
	}
	_, err = o.out.Write(text)
	return err
}

func encode(answer any, format string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(answer); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	if format != "yaml" {
		return escapeJSON(b.Bytes()), nil
	}
	return encodeYAML(jsonToNode(b.Bytes()))
}

// printAll prints for programs: the answer if the command names one thing, or a list.
func printAll[T any](o *output, named int, answers []T, failed error) error {
	if o.humanReadable() || len(answers) == 0 {
		return failed
	}
	var all any = answers
	if named == 1 {
		all = answers[0]
	}
	if err := o.print(all, nil); err != nil {
		return err
	}
	return failed
}

// line prints a line of data.
func (o *output) line(format string, args ...any) { fmt.Fprintf(o.out, format+"\n", args...) }

// jsonLine prints a value as a line of JSON.
func (o *output) jsonLine(value any) { o.line("%s", escapeJSON(belfry.MustJSON(value))) }

// message prints a line for the user that is not data.
func (o *output) message(format string, args ...any) { fmt.Fprintf(o.err, format+"\n", args...) }

// result prints what was done to something, in one line.
func (o *output) result(verb, name, detail string) {
	colours := map[string]string{
		"created": green, "create": green, "updated": yellow, "update": yellow, "deleted": red, "delete": red, "unchanged": grey,
	}
	text := o.palette.paint(colours[verb], fmt.Sprintf("%-9s", verb)) + "  " + escape(name)
	if detail != "" {
		text += "   " + escape(detail)
	}
	o.line("%s", text)
}

// section prints a text of several lines under a title, unless it is empty.
func (o *output) section(title, text string) {
	if text = strings.TrimRight(escapeLines(text), "\n"); text != "" {
		o.line("%s\n  %s", title, strings.ReplaceAll(text, "\n", "\n  "))
	}
}

func (o *output) jsonSection(title string, value json.RawMessage) {
	var b bytes.Buffer
	if len(value) > 0 && json.Indent(&b, value, "  ", "  ") == nil {
		o.line("%s\n  %s", title, escapeJSON(b.Bytes()))
	}
}

func compactJSON(value json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, value) == nil {
		value = b.Bytes()
	}
	return escape(string(value))
}

// ask asks the user, who agrees with y or yes. Any other answer is an error.
func (c *cli) ask(question string) error {
	fmt.Fprint(c.err, escape(question)+" [y/N] ")
	answer, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil && answer == "" {
		c.message("")
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	if answer == "y" || answer == "yes" {
		return nil
	}
	c.message("Nothing was changed.")
	return exitError{errReported, exitOther}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// mapSlice applies a function to all items of a list.
func mapSlice[S, T any](list []S, f func(S) T) []T {
	out := make([]T, len(list))
	for i, item := range list {
		out[i] = f(item)
	}
	return out
}

// plural is a number of things: "1 job", "2 jobs".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// escape makes text from outside safe to print on a terminal: characters that are not
// printable, such as escape sequences and changes of the writing direction, are
// replaced by their codes.
func escape(s string) string { return escapeExcept(s, "") }

// escapeLines is escape for text of several lines, which are kept.
func escapeLines(s string) string {
	return escapeExcept(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t")
}

func escapeExcept(s, keep string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		isValid := r != utf8.RuneError || size > 1
		if isValid && isPrintable(r) || strings.ContainsRune(keep, r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}

func isPrintable(r rune) bool { return r == ' ' || unicode.IsPrint(r) }

// escapeJSON is escape for the strings of a JSON text, whose meaning stays the same.
func escapeJSON(content []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(content) {
		if r == '\n' || isPrintable(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}

func shorten(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}
