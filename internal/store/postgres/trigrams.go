package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// gramEvery is how far apart the grams of a name begin. An index of all of them
// would be nearly twice as dear to write, for the sake of searches of three
// letters.
const trigramStep = 2

// minIndexed is the number of letters that surely cover a whole gram, wherever
// they are in a name.
const minIndexedLetters = trigramStep + 2

// gramsOf gives every second three letters of a name, in lower case.
func nameTrigrams(name string) []int64 {
	letters := lowerRunes(name)
	if len(letters) < 3 {
		return nil
	}
	return distinctTrigrams(letters)
}

// gramsSought gives, for each place where a part of a name may begin between two
// grams, the grams that a name with that part has. It has none for a short part.
func searchTrigrams(part string) [][]int64 {
	if utf8.RuneCountInString(part) < minIndexedLetters {
		return nil
	}
	letters, sought := lowerRunes(part), make([][]int64, trigramStep)
	for i := range sought {
		sought[i] = distinctTrigrams(letters[i:])
	}
	return sought
}

func lowerRunes(s string) []rune {
	letters := []rune(storable(s))
	for i, r := range letters {
		letters[i] = unicode.ToLower(r)
	}
	return letters
}

func distinctTrigrams(letters []rune) []int64 {
	grams := make([]int64, 0, len(letters)/trigramStep)
	for i := 0; i+3 <= len(letters); i += trigramStep {
		grams = append(grams, int64(letters[i])<<42|int64(letters[i+1])<<21|int64(letters[i+2]))
	}
	slices.Sort(grams)
	return slices.Compact(grams)
}

// shares says which part of all names has a gram, as far as the server's
// statistics tell.
type trigramShares struct {
	common map[int64]float64 // empty: nothing is known
	least  float64           // of the common ones; all others have less
}

func (s trigramShares) of(gram int64) float64 {
	if share, ok := s.common[gram]; ok {
		return share
	}
	return s.least / 2
}

// What an index is asked for: a gram that more than a third of the names have
// takes longer to read than it saves; fewer names than one in a thousand need no
// further gram; and more than one in thirty are not worth it.
const (
	commonShare = 0.3
	rareShare   = 0.001
	worthShare  = 0.03
)

// worth chooses the rarest of the grams that a name must have, for each place
// where the part may begin. It gives nothing if an index would not help.
func (s trigramShares) selective(sought [][]int64) [][]int64 {
	if len(s.common) == 0 {
		return sought
	}
	var chosen [][]int64
	for _, grams := range sought {
		grams = slices.Clone(grams)
		slices.SortStableFunc(grams, func(a, b int64) int { return cmp.Compare(s.of(a), s.of(b)) })
		n, share := 0, 1.0
		for n < len(grams) && share > rareShare && s.of(grams[n]) <= commonShare {
			share *= s.of(grams[n])
			n++
		}
		if share > worthShare {
			return nil
		}
		chosen = append(chosen, grams[:n])
	}
	return chosen
}

// sharesFor is how long statistics are believed.
const shareCacheTime = time.Minute

// gramShares remembers the shares of grams.
type shareCache struct {
	mu    sync.Mutex
	known trigramShares
	until time.Time
}

func (g *shareCache) get(ctx context.Context, tx pgx.Tx) (trigramShares, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.until) {
		return g.known, nil
	}
	rows, err := tx.Query(ctx, `
SELECT e.gram, e.share FROM pg_stats s
 CROSS JOIN LATERAL unnest(s.most_common_elems::text::bigint[], s.most_common_elem_freqs::float8[]) AS e (gram, share)
 WHERE s.schemaname = 'belfry' AND s.tablename = 'jobs' AND s.attname = 'grams' AND e.gram IS NOT NULL`)
	if err != nil {
		return trigramShares{}, err
	}
	known := trigramShares{common: map[int64]float64{}, least: 1}
	var gram int64
	var share float64
	if _, err = pgx.ForEachRow(rows, []any{&gram, &share}, func() error {
		known.common[gram], known.least = share, min(known.least, share)
		return nil
	}); err != nil {
		return trigramShares{}, err
	}
	g.known, g.until = known, time.Now().Add(shareCacheTime)
	return known, nil
}
