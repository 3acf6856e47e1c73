package pgtest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// What a client's first message, which has no kind, can be besides an introduction proper.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// The lengths that messages of the protocol (version 3) may have, as far as the proxy cares.
const (
	longestIntroduction = 10_000
	longestMessage      = 1 << 30
)

// message is one message of either side: a byte for its kind, four for the length of the rest, which includes
// themselves, and a body.
type message struct{ raw []byte }

func (m message) kind() byte   { return m.raw[0] }
func (m message) body() []byte { return m.raw[5:] }

// read replaces m with the next message. The memory is used again.
func (m *message) read(in *bufio.Reader) error {
	header, err := in.Peek(5)
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(header[1:]))
	if size < 4 || size > longestMessage {
		return fmt.Errorf("read a message of kind %q: its length is %d", header[0], size)
	}
	m.raw = m.raw[:0]
	for left := size + 1; left > 0 && err == nil; { // in pieces, so that a wrong length costs no memory
		have, piece := len(m.raw), min(left, 1<<20)
		m.raw = slices.Grow(m.raw, piece)[:have+piece]
		_, err = io.ReadFull(in, m.raw[have:])
		left -= piece
	}
	return err
}

// readIntroduction reads the first message of a client.
func readIntroduction(in *bufio.Reader) (code uint32, raw []byte, err error) {
	header, err := in.Peek(8)
	if err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(header)
	if size < 8 || size > longestIntroduction {
		return 0, nil, fmt.Errorf("read an introduction: its length is %d", size)
	}
	code = binary.BigEndian.Uint32(header[4:])
	raw = make([]byte, size)
	_, err = io.ReadFull(in, raw)
	return code, raw, err
}
