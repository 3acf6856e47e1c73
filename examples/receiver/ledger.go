package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
)

// entry is a charge and the idempotency key of its request.
type entry struct {
	Key    string `json:"key"`
	Amount int    `json:"amount"`
}

// ledger is the charges that were made: a line of JSON for each.
type ledger struct {
	mu   sync.Mutex // guards all below
	file *os.File
	size int64
	keys map[string]bool
	list []entry
}

// openLedger reads the charges. Half a line at the end is a charge that was never
// confirmed, so it is removed.
func openLedger(path string) (*ledger, error) {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l := &ledger{keys: map[string]bool{}, list: []entry{}}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	for line := range bytes.Lines(whole) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		l.keys[e.Key], l.list = true, append(l.list, e)
	}
	if l.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	l.size = int64(len(whole))
	return l, l.file.Truncate(l.size)
}

// add writes a charge unless its key exists, and reports whether it did. After an error
// nothing was written.
func (l *ledger) add(e entry) (first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys[e.Key] {
		return false, nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return false, err
	}
	if _, err = l.file.WriteAt(append(line, '\n'), l.size); err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		l.file.Truncate(l.size) // what was written of it
		return false, fmt.Errorf("write a charge: %w", err)
	}
	l.size += int64(len(line)) + 1
	l.keys[e.Key], l.list = true, append(l.list, e)
	return true, nil
}

func (l *ledger) entries() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}
