package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

const stillMasked = "is masked; give the secret itself"

// Unmask puts the secrets of a stored payload back into one that was written
// after Mask had hidden them: where both have the same text or key in the same
// place. A secret that is still hidden after that is a fault, as all are if
// nothing is stored. Elements of a list are in the same place only as long as none
// is taken out, put in between or moved. All else stays as it is written; what is
// not JSON is left to others.
func Unmask(payload, stored json.RawMessage) (json.RawMessage, []belfry.FieldError) {
	// A star may be written as an escape as well.
	if !bytes.Contains(payload, []byte(Masked)) && !bytes.Contains(payload, []byte(`\u002`)) || !json.Valid(payload) {
		return payload, nil
	}
	var behind *node
	if json.Valid(stored) {
		behind = readNode(stored)
	}
	u := unmasker{payload: payload}
	u.value("payload", readNode(payload), behind, false)
	if u.from > 0 {
		u.out.Write(payload[u.from:])
		payload = u.out.Bytes()
	}
	return payload, u.errors
}

// unmasker copies a payload up to each hidden secret and puts that back.
type unmasker struct {
	payload []byte
	from    int // what comes before it is copied
	out     bytes.Buffer
	errors  []belfry.FieldError
}

func (u *unmasker) restore(n, behind *node) {
	u.out.Write(u.payload[u.from:n.start])
	u.out.Write(behind.raw)
	u.from = n.end
}

// value looks at a value and at what is stored in its place, if anything. What is
// secret was hidden with all that is in it.
func (u *unmasker) value(path string, n, behind *node, secret bool) {
	switch n.kind {
	case '{':
		u.object(path, n, behind, secret)
	case '[':
		opposite := n.opposites(behind)
		for i, item := range n.items {
			u.value(fmt.Sprintf("%s[%d]", path, i), item, opposite(i), secret)
		}
	case '"':
		stored := behind != nil && behind.kind == '"'
		switch {
		case stored && behind.text == n.text: // nothing is hidden here
		case stored && behind.masked == n.text:
			u.restore(n, behind)
		case secret && n.text == Masked, hides(n.text):
			u.errors = append(u.errors, belfry.FieldError{Field: path, Message: stillMasked})
		}
	}
}

func (u *unmasker) object(path string, n, behind *node, secret bool) {
	members := map[string][]*node{} // what is stored, by key
	if behind != nil && behind.kind == '{' {
		for i, key := range behind.keys {
			members[key] = append(members[key], behind.items[i])
		}
	}
	for i, key := range n.keys {
		item, path := n.items[i], path+"."+sanitize.Text(key, 100)
		var opposite *node
		if left := members[key]; len(left) > 0 { // doubled keys in their order
			opposite, members[key] = left[0], left[1:]
		}
		switch {
		case secret || !secretName(key):
			u.value(path, item, opposite, secret)
		case opposite != nil && item.kind == '"' && item.text == Masked:
			u.restore(item, opposite)
		case opposite != nil && bytes.Equal(item.raw, opposite.raw): // it was stored like that
		default:
			u.value(path, item, nil, true)
		}
	}
}

// hides reports whether a text has a place of a secret with nothing but Masked
// in it.
func hides(text string) (found bool) {
	maskText(text, 0, func(secret string) string {
		found = found || secret == Masked
		return Masked
	})
	return found
}

// node is a JSON value that knows where it was written.
type node struct {
	kind       byte // '{', '[', '"', or 0 for any other scalar
	raw        []byte
	start, end int      // of raw in the whole
	text       string   // of a string
	masked     string   // the text without its secrets
	keys       []string // of an object
	items      []*node  // their values, or the elements of an array
	form       uint64   // the same for values that are equal without their secrets
}

var formSeed = maphash.MakeSeed()

func readNode(whole []byte) *node {
	r := nodeReader{whole: whole, in: json.NewDecoder(bytes.NewReader(whole))}
	r.in.UseNumber()
	return r.value()
}

type nodeReader struct {
	whole []byte
	in    *json.Decoder
}

func (r *nodeReader) value() *node {
	n := &node{start: int(r.in.InputOffset())}
	for bytes.IndexByte([]byte(" \t\r\n,:"), r.whole[n.start]) >= 0 {
		n.start++
	}
	var form maphash.Hash
	form.SetSeed(formSeed)
	token, _ := r.in.Token() // the input is valid
	switch v := token.(type) {
	case json.Delim:
		n.kind = byte(v)
		form.WriteByte(n.kind)
		for r.in.More() {
			r.item(n, &form)
		}
		r.in.Token()
	case string:
		n.kind, n.text, n.masked = '"', v, maskText(v, 0, maskAll)
		form.WriteByte('"')
		form.WriteString(n.masked)
	default:
		form.Write(bytes.TrimSpace(r.whole[n.start:r.in.InputOffset()]))
	}
	n.end = int(r.in.InputOffset())
	n.raw, n.form = r.whole[n.start:n.end], form.Sum64()
	return n
}

// item reads a member of an object or an element of an array.
func (r *nodeReader) item(n *node, form *maphash.Hash) {
	hidden := false
	if n.kind == '{' {
		token, _ := r.in.Token()
		key, _ := token.(string)
		n.keys, hidden = append(n.keys, key), secretName(key)
		form.WriteString(key)
		form.WriteByte(0)
	}
	item := r.value()
	n.items = append(n.items, item)
	if hidden {
		form.WriteByte('*')
	} else {
		maphash.WriteComparable(form, item.form)
	}
}

// opposites finds the elements of an earlier list that stand in the places of
// this one's. There is none where elements seem to have moved, since what is
// hidden does not tell whose it is.
func (n *node) opposites(earlier *node) func(i int) *node {
	none := func(int) *node { return nil }
	if earlier == nil || earlier.kind != '[' || len(n.items) < len(earlier.items) {
		return none
	}
	same := func(a, b *node) bool { return a.form == b.form }
	appended := len(n.items) > len(earlier.items)
	if appended && !slices.EqualFunc(n.items[:len(earlier.items)], earlier.items, same) {
		return none
	}
	forms := make(map[uint64]bool, len(earlier.items))
	for _, item := range earlier.items {
		forms[item.form] = true
	}
	return func(i int) *node {
		if i >= len(earlier.items) || !same(n.items[i], earlier.items[i]) && forms[n.items[i].form] {
			return nil
		}
		return earlier.items[i]
	}
}
