package secret

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"slices"
)

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

// readNode takes valid JSON apart.
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
		r.items(n, &form)
	case string:
		n.kind, n.text, n.masked = '"', v, maskText(v, 0, whatever)
		form.WriteByte('"')
		form.WriteString(n.masked)
	default:
		form.Write(bytes.TrimSpace(r.whole[n.start:r.in.InputOffset()]))
	}
	n.end = int(r.in.InputOffset())
	n.raw, n.form = r.whole[n.start:n.end], form.Sum64()
	return n
}

// items reads what is in an object or array, and its end.
func (r *nodeReader) items(n *node, form *maphash.Hash) {
	for r.in.More() {
		var key string
		if n.kind == '{' {
			token, _ := r.in.Token()
			key, _ = token.(string)
			n.keys = append(n.keys, key)
			form.WriteString(key)
			form.WriteByte(0)
		}
		item := r.value()
		n.items = append(n.items, item)
		if n.kind == '{' && secretName(key) {
			form.WriteByte('*')
		} else {
			maphash.WriteComparable(form, item.form)
		}
	}
	r.in.Token()
}

// members gives the values of each key of an object.
func (n *node) members() map[string][]*node {
	if n == nil || n.kind != '{' {
		return nil
	}
	members := make(map[string][]*node, len(n.keys))
	for i, key := range n.keys {
		members[key] = append(members[key], n.items[i])
	}
	return members
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
