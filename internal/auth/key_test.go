package auth

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestKeys(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewKeyID()
		text, hash := NewKey(id)
		gotID, gotHash, ok := ParseKey(text)
		if !ok || gotID != id || gotHash != hash || seen[text] || KeyPattern.FindString("x="+text+";") != text {
			t.Fatalf("a key is not read as it was written, or made twice: %d characters", len(text))
		}
		seen[text] = true
		for i := range text { // every mistyped character is noticed
			wrong := byte('A')
			if text[i] == 'A' {
				wrong = 'b'
			}
			if _, _, ok := ParseKey(text[:i] + string(wrong) + text[i+1:]); ok {
				t.Fatalf("a key with another character at %d is accepted", i)
			}
		}
		for _, bad := range []string{"", "bf_", text[:len(text)-1], text + "0", " " + text, strings.ToUpper(text), "bf_" + text} {
			if _, _, ok := ParseKey(bad); ok {
				t.Fatalf("%d characters are accepted", len(bad))
			}
		}
	}
	if _, zero, _ := ParseKey(""); zero != [32]byte{} {
		t.Error("no key has a hash")
	}
}

func TestLimitsHaveBoundedMemory(t *testing.T) {
	l := Limiter{Every: time.Second, Burst: 2}
	now := time.Now()
	for i := range 3 * maxAddresses {
		l.Take(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), now)
	}
	if n := len(l.full.items); n != maxAddresses || l.full.order.Len() != n {
		t.Errorf("%d addresses are remembered", n)
	}
	for _, tt := range []struct {
		address string
		wait    time.Duration
	}{{"2001:db8::1", 0}, {"2001:db8::2", 0}, {"2001:db8::3", time.Second}, {"2001:db8:0:1::1", 0}, {"192.0.2.1", 0}, {"::ffff:192.0.2.1", 0}, {"192.0.2.1", time.Second}, {"192.0.2.2", 0}, {"not an address", 0}} {
		if got := l.Take(tt.address, now); got != tt.wait {
			t.Errorf("%s waits %s, want %s", tt.address, got, tt.wait)
		}
	}
	if wait := l.Take("192.0.2.1", now.Add(time.Second)); wait != 0 {
		t.Errorf("a second later it waits %s", wait)
	}
	g := NewGuesses()
	for i := range 2 * maxAddresses {
		g.Right("192.0.2.1", fmt.Sprint(i), now)
	}
	if n := len(g.right.items); n != maxAddresses {
		t.Errorf("%d keys are remembered", n)
	}
}
