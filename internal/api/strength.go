package api

import (
	"fmt"
	"math"
	"strings"
)

const (
	minKey     = 32  // characters of a key
	minEntropy = 112 // bits of a key, as estimated: 128 random ones may have a pattern by chance
	pattern    = 4   // characters in a row that follow a pattern
)

// checkStrength refuses a key of the file that could be guessed. It does not repeat the key.
func checkStrength(key string) error {
	if len(key) < minKey {
		return fmt.Errorf("the key has %d characters, the least is %d; make one with: openssl rand -hex 32", len(key), minKey)
	}
	if bits := entropy(key); bits < minEntropy {
		return fmt.Errorf("the key could be guessed: it repeats itself or follows a pattern, and has about %.0f bits instead of 128; make one with: openssl rand -hex 32", bits)
	}
	return nil
}

// entropy estimates the bits of a key, the most that it may have: as many as its alphabet allows
// for each character, and none for those that repeat what was before or continue a row such as
// 1234 or aaaa.
func entropy(key string) float64 {
	distinct := map[byte]bool{}
	hex, alphabet := true, 0
	for i := range len(key) {
		distinct[key[i]] = true
		hex = hex && !strings.ContainsRune("ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ", rune(key[i]))
	}
	for _, class := range []string{"0123456789", "abcdef", "ABCDEF"} {
		if strings.ContainsAny(key, class) {
			alphabet += len(class)
		}
	}
	if !hex {
		alphabet = 64
	}
	each := math.Log2(float64(min(alphabet, 2*len(distinct))))
	bits := 0.0
	for i := range len(key) {
		from := i + 1 - pattern
		repeated := from > 0 && strings.Contains(key[:i], key[from:i+1])
		if !repeated && !isRow(key[max(0, from):i+1]) {
			bits += each
		}
	}
	return bits
}

// isRow reports whether every character is as far from the one before, and next to it at most.
func isRow(text string) bool {
	if len(text) < pattern {
		return false
	}
	step := int(text[1]) - int(text[0])
	for i := 1; i < len(text); i++ {
		if int(text[i])-int(text[i-1]) != step {
			return false
		}
	}
	return step >= -1 && step <= 1
}
