package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A name has the trigrams of its parts, in any case of its letters.
func TestSearchTrigramsAreInNameTrigrams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := []rune(rapid.StringOfN(rapid.RuneFrom([]rune("abcAB-0ÄäЖж\u20ac😀")), minIndexedLetters, 40, -1).Draw(t, "name"))
		from := rapid.IntRange(0, len(name)-minIndexedLetters).Draw(t, "from")
		to := rapid.IntRange(from+minIndexedLetters, len(name)).Draw(t, "to")
		part := strings.ToUpper(string(name[from:to]))
		has := textTrigrams(string(name))
		for _, trigrams := range searchTrigrams(part) {
			if len(trigrams) == 0 {
				t.Fatalf("a part of %d letters has no trigram", to-from)
			}
			if !slices.ContainsFunc(trigrams, func(g int64) bool { return !slices.Contains(has, g) }) {
				return
			}
		}
		t.Fatalf("%q is not found by its part %q", string(name), part)
	})
}

func TestNameTrigramsOfShortNames(t *testing.T) {
	for name, want := range map[string]int{"": 0, "ab": 0, "abc": 1, "abcd": 1, "abcde": 2, "ababab": 1} {
		if got := textTrigrams(name); len(got) != want || (want == 0) != (got == nil) {
			t.Errorf("%q has the trigrams %v, want %d", name, got, want)
		}
	}
}

func TestSelectiveTrigrams(t *testing.T) {
	shares := trigramShares{map[int64]float64{1: 1, 2: 0.9, 3: 0.2, 4: 0.1, 5: 0.05, 6: 0.01, 7: 0.0001}, 0.0001}
	for _, tt := range []struct {
		name           string
		byOffset, want [][]int64
	}{
		{"nothing for a short part", nil, nil},
		{"the rarest alone, if that is rare enough", [][]int64{{1, 6, 7}}, [][]int64{{7}}},
		{"one without statistics, which is rarer still", [][]int64{{1, 7, 8}}, [][]int64{{8}}},
		{"as many as it takes", [][]int64{{1, 2, 4, 5, 6}}, [][]int64{{6, 5}}},
		{"two common ones that are rare together", [][]int64{{1, 3, 4}}, [][]int64{{4, 3}}},
		{"none if all are common", [][]int64{{1, 2}}, nil},
		{"none if they are not rare even together", [][]int64{{1, 3}}, nil},
		{"none if that is so for one offset", [][]int64{{7}, {1, 2}}, nil},
		{"each offset by itself", [][]int64{{1, 7}, {2, 6, 5}}, [][]int64{{7}, {6, 5}}},
	} {
		got := shares.selective(tt.byOffset)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	all := [][]int64{{1, 2}, {3}}
	if diff := cmp.Diff(all, trigramShares{}.selective(all)); diff != "" {
		t.Errorf("without statistics (-want +got):\n%s", diff)
	}
}
