package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// formats are the output formats. A wide table has more columns.
var formats = []string{"table", "wide", "json", "yaml"}

const maxPageSize = 500 // of the server's lists

// output is where and how a command prints.
type output struct {
	out, err io.Writer
	format   string
	palette  palette
	now      func() time.Time
}

func newOutput(cmd *cobra.Command, format string, noColor bool) output {
	o := output{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), format: format, now: time.Now}
	o.palette.on = o.human() && !noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(o.out)
	return o
}

// human reports whether the output is for people and not for programs.
func (o *output) human() bool { return o.format == "table" || o.format == "wide" }

// print prints an answer of the server: for programs as it is, for people by show.
func (o *output) print(answer any, show func() error) error {
	if o.human() {
		return show()
	}
	text, err := encode(answer, o.format)
	if err != nil {
		return err
	}
	_, err = o.out.Write(text)
	return err
}

// encode writes an answer as JSON or YAML.
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
	node, err := jsonToNode(b.Bytes())
	if err != nil {
		return nil, err
	}
	return encodeYAML(node)
}

// printAll prints the answers about the things that a command names, for programs: the
// answer itself if it names one, otherwise a list.
func printAll[T any](o *output, named int, answers []T, failed error) error {
	if o.human() || len(answers) == 0 {
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
func (o *output) line(format string, args ...any) error {
	_, err := fmt.Fprintf(o.out, format+"\n", args...)
	return err
}

// message prints a line for the user that is not data.
func (o *output) message(format string, args ...any) { fmt.Fprintf(o.err, format+"\n", args...) }

// result prints what was done to something, in one line.
func (o *output) result(verb, name, detail string) error {
	colours := map[string]string{
		"created": green, "create": green, "updated": yellow, "update": yellow, "deleted": red, "delete": red, "unchanged": grey,
	}
	text := o.palette.paint(colours[verb], fmt.Sprintf("%-9s", verb)) + "  " + escape(name)
	if detail != "" {
		text += "   " + escape(detail)
	}
	return o.line("%s", text)
}

// section prints a text of several lines under a title, unless it is empty.
func (o *output) section(title, text string) error {
	text = strings.TrimRight(escapeLines(text), "\n")
	if text == "" {
		return nil
	}
	return o.line("%s\n  %s", title, strings.ReplaceAll(text, "\n", "\n  "))
}

// jsonSection prints a JSON value under a title, unless there is none.
func (o *output) jsonSection(title string, value json.RawMessage) error {
	var b bytes.Buffer
	if len(value) == 0 || json.Indent(&b, value, "  ", "  ") != nil {
		return nil
	}
	return o.line("%s\n  %s", title, escapeJSON(b.Bytes()))
}

// compactJSON is a JSON value in one line.
func compactJSON(value json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return shorten(escape(string(value)), 200)
	}
	return shorten(escape(b.String()), 200)
}

// ask asks the user, who agrees with y or yes.
func (c *cli) ask(question string) (bool, error) {
	if _, err := io.WriteString(c.err, escape(question)+" [y/N] "); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil && answer == "" {
		c.message("")
		return false, nil
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	c.message("Nothing was changed.")
	return false, nil
}

// isTerminal reports whether a stream is a terminal.
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

// listing is a command that prints a list of T.
type listing[T any] struct {
	noun string // plural
	list func(c *cli, args []string, pageSize int) (iter.Seq2[T, error], error)
	show func(c *cli, args []string, items []T) error // for people
}

// command adds --limit and the run function to a command.
func (l listing[T]) command(f *connectionFlags, cmd *cobra.Command) *cobra.Command {
	limit := addLimitFlag(cmd)
	return f.command(cmd, func(c *cli, args []string) error { return l.run(c, args, *limit) })
}

func addLimitFlag(cmd *cobra.Command) *int {
	return cmd.Flags().Int("limit", 50, "how many to list; 0 lists all")
}

func (l listing[T]) run(c *cli, args []string, limit int) error {
	if limit < 0 {
		return usagef("--limit: %d is negative; 0 lists all", limit)
	}
	pageSize := maxPageSize
	if limit > 0 {
		pageSize = min(limit+1, maxPageSize) // one more shows whether there are more
	}
	seq, err := l.list(c, args, pageSize)
	if err != nil {
		return err
	}
	items, more, err := collect(seq, limit)
	if err != nil {
		return err
	}
	if err := c.print(items, func() error { return l.show(c, args, items) }); err != nil {
		return err
	}
	if more {
		c.message("There are more %s. List all with: --limit 0", l.noun)
	}
	return nil
}

// collect returns the first items of a sequence and whether there are more; limit 0 is
// all of them. The list is never nil, so that it is a list in JSON.
func collect[T any](items iter.Seq2[T, error], limit int) (list []T, more bool, err error) {
	list = []T{}
	for item, err := range items {
		if err != nil {
			return nil, false, err
		}
		if limit > 0 && len(list) == limit {
			return list, true, nil
		}
		list = append(list, item)
	}
	return slices.Clip(list), false, nil
}

// plural is a number of things: "1 job", "2 jobs".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
