package schema

import "strings"

// Nearest returns the name that somebody may have meant who wrote another: one that
// differs in a few letters, or of which it is the beginning or the end. Case and
// separators do not count. It is empty if there is none.
func Nearest(written string, names []string) string {
	const longest = 64
	if len(written) > longest {
		return ""
	}
	w := bareName(written)
	best, least := "", max(1, len(w)/4)+1
	for _, name := range names {
		n := bareName(name)
		d := distance(w, n)
		if len(w) >= 4 && (strings.HasPrefix(n, w) || strings.HasSuffix(n, w)) {
			d = 1
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

// bareName is a name in lower case without separators.
func bareName(name string) string { return strings.ToLower(separators.Replace(name)) }

// distance counts the letters to insert, delete, replace or swap with their neighbour
// to turn a into b.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(last[j]+cost, next[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = last, next
	}
	return row[len(b)]
}
