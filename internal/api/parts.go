package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// maxPart is how many bytes one of many jobs may have.
const maxPart = 1 << 20

// parts takes jobs one by one out of a body that is too large to be in memory: a
// job a line, or an array.
type parts struct {
	in        *bufio.Reader
	array     bool
	namespace string

	n    int    // lines or elements so far
	text []byte // of the current one
	over bool   // it is larger than maxPart, and not whole
}

func newParts(body io.Reader, array bool, namespace string) *parts {
	return &parts{in: bufio.NewReaderSize(body, 64<<10), array: array, namespace: namespace}
}

// next gives the next job with its place and what is wrong with it, io.EOF behind
// the last, or an error that makes no sense of the rest.
func (p *parts) next() (control.Line, error) {
	if p.array {
		return p.nextElement()
	}
	return p.nextLine()
}

// nextLine skips lines that are blank.
func (p *parts) nextLine() (control.Line, error) {
	for {
		if err := p.readLine(); err != nil {
			return control.Line{}, err
		}
		p.n++
		if p.text = bytes.TrimSpace(p.text); p.over || len(p.text) > 0 {
			return p.job(fmt.Sprintf("line %d", p.n)), nil
		}
	}
}

// readLine reads up to a line break or the end, of which at least one must be
// there.
func (p *parts) readLine() error {
	p.text, p.over = p.text[:0], false
	for {
		piece, err := p.in.ReadSlice('\n')
		p.add(piece)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && (len(p.text) > 0 || p.over):
			return nil
		default:
			return err
		}
	}
}

// add puts bytes to the current text, as far as there is room.
func (p *parts) add(piece []byte) {
	if len(p.text)+len(piece) > maxPart {
		p.over = true
		piece = piece[:maxPart-len(p.text)]
	}
	p.text = append(p.text, piece...)
}

// harmless is the job of a text that is none, so that nothing but that is said of
// it.
var harmless = func() control.Draft {
	d := control.Draft{Spec: usual, Payload: []byte(`{"url":"https://example.com"}`)}
	d.Spec.Type, d.Spec.Schedule = belfry.TypeHTTP, "@yearly"
	return d
}()

// job makes a job of the current text.
func (p *parts) job(place string) control.Line {
	line := control.Line{Place: place, Draft: harmless}
	if p.over {
		line.Faults = []belfry.FieldError{{Message: fmt.Sprintf("has more than %d bytes", maxPart)}}
		return line
	}
	draft, faults, f := readDraft(p.text, p.namespace, false)
	if f != nil {
		what := f.what
		if !p.array {
			what = strings.Replace(what, "line 1, ", "", 1) // The place tells the line.
		}
		line.Faults = []belfry.FieldError{{Message: what}}
		return line
	}
	draft.Payload = bytes.Clone(draft.Payload) // The text is used again.
	line.Draft, line.Faults = draft, faults
	return line
}

// nextElement gives the next element of an array. Where the JSON is wrong nothing
// behind it can be told apart.
func (p *parts) nextElement() (control.Line, error) {
	c, err := p.mark()
	switch {
	case errors.Is(err, io.EOF) && p.n == 0:
		return control.Line{}, io.EOF // an empty body
	case p.n == 0 && err == nil && c != '[':
		return control.Line{}, p.broken("it must be an array of jobs; a job a line is sent as %s", mediaLines)
	case p.n == 0 && err == nil:
		if c, err = p.mark(); err == nil && c != ']' {
			err = p.in.UnreadByte()
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return control.Line{}, p.broken("it ends too early")
	case err != nil:
		return control.Line{}, err
	case c == ']':
		return control.Line{}, p.end()
	}
	if err := p.readElement(); err != nil {
		return control.Line{}, err
	}
	place := fmt.Sprintf("[%d]", p.n)
	p.n++
	if !p.over && !json.Valid(p.text) {
		if f := checkJSON(p.text); f != nil && len(bytes.TrimSpace(p.text)) > 0 {
			return control.Line{}, p.broken("%s %s", place, f.what)
		}
		return control.Line{}, p.broken("%s is empty", place)
	}
	return p.job(place), nil
}

// mark gives the next byte that is not white space: the bracket or comma before an
// element, or the bracket at the end.
func (p *parts) mark() (byte, error) {
	for {
		c, err := p.in.ReadByte()
		if err != nil || c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, err
		}
	}
}

// readElement reads up to the comma or bracket behind an element, and leaves that.
func (p *parts) readElement() error {
	p.text, p.over = p.text[:0], false
	depth, quoted, escaped := 0, false, false
	for {
		c, err := p.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return p.broken("it ends too early, in [%d]", p.n)
		}
		if err != nil {
			return err
		}
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case depth == 0 && (c == ',' || c == ']'):
			return p.in.UnreadByte()
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if p.over = p.over || len(p.text) == maxPart; !p.over {
			p.text = append(p.text, c)
		}
	}
}

// end makes sure that nothing is behind the array.
func (p *parts) end() error {
	if c, err := p.mark(); err == nil {
		return p.broken("there is %q behind the array", c)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return io.EOF
}

// broken refuses a body that is not an array. It counts as an invalid request for
// whoever asks what kind of failure it is.
func (p *parts) broken(format string, args ...any) error {
	e := refuse("the body is not a JSON array that can be read: %s", fmt.Sprintf(format, args...))
	return fmt.Errorf("%w: %w", e, belfry.Errorf(belfry.Invalid, "%s", e.detail))
}
