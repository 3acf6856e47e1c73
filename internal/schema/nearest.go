package schema

import "strings"

// Nearest finds the name that somebody may have meant who wrote another: one that
// differs in a few letters, or is longer or shorter. Case and the marks between
// words do not count. There may be none.
func Nearest(written string, names []string) string {
	const most = 64 // characters that are looked at
	if len(written) > most {
		return ""
	}
	w := bare(written)
	best, least := "", max(1, len(w)/4)+1
	for _, name := range names {
		n := bare(name)
		distance := changes(w, n)
		if len(w) >= 4 && (strings.HasPrefix(n, w) || strings.HasSuffix(n, w)) {
			distance = 1
		}
		if distance < least {
			best, least = name, distance
		}
	}
	return best
}

// bare is a name in lower case without marks.
func bare(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name))
}

// changes counts the letters to add, drop or replace to make b of a.
func changes(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
