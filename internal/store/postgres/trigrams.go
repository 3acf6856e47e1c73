package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// trigramStep is the distance between the trigrams of a name. An index of all of them
// would cost nearly twice as much to write, and only help searches of three letters.
const trigramStep = 2

// minIndexedLetters is how many letters cover a whole trigram, wherever they are in a
// name.
const minIndexedLetters = trigramStep + 2

// textTrigrams returns every second trigram of a text, in lower case.
func textTrigrams(text string) []int64 {
	letters := lowerRunes(text)
	if len(letters) < 3 {
		return nil
	}
	return distinctTrigrams(letters)
}

// searchTrigrams returns, for each offset that a part of a name may have from the
// trigrams of the name, the trigrams that a name with that part has; nil for a short
// part.
func searchTrigrams(part string) [][]int64 {
	if utf8.RuneCountInString(part) < minIndexedLetters {
		return nil
	}
	letters, byOffset := lowerRunes(part), make([][]int64, trigramStep)
	for i := range byOffset {
		byOffset[i] = distinctTrigrams(letters[i:])
	}
	return byOffset
}

func lowerRunes(s string) []rune { return []rune(strings.ToLower(storable(s))) }

func distinctTrigrams(letters []rune) []int64 {
	trigrams := make([]int64, 0, len(letters)/trigramStep)
	for i := 0; i+3 <= len(letters); i += trigramStep {
		trigrams = append(trigrams, int64(letters[i])<<42|int64(letters[i+1])<<21|int64(letters[i+2]))
	}
	slices.Sort(trigrams)
	return slices.Compact(trigrams)
}

// trigramShares is the share of names that have a trigram, by the server's statistics.
type trigramShares struct {
	common map[int64]float64 // empty: there are no statistics
	least  float64           // of the common ones; all others have less
}

func (s trigramShares) of(trigram int64) float64 {
	if share, ok := s.common[trigram]; ok {
		return share
	}
	return s.least / 2
}

// A trigram that more than a third of the names have costs more to read than it saves.
// One name in a thousand is few enough to need no further trigram, and more than one in
// thirty is not worth an index query.
const (
	maxTrigramShare  = 0.3
	rareTrigramShare = 0.001
	maxQueryShare    = 0.03
)

// selective chooses the rarest of the trigrams of each offset; nil if an index would
// not help.
func (s trigramShares) selective(byOffset [][]int64) [][]int64 {
	if len(s.common) == 0 {
		return byOffset
	}
	var chosen [][]int64
	for _, trigrams := range byOffset {
		trigrams = slices.Clone(trigrams)
		slices.SortStableFunc(trigrams, func(a, b int64) int { return cmp.Compare(s.of(a), s.of(b)) })
		n, share := 0, 1.0
		for n < len(trigrams) && share > rareTrigramShare && s.of(trigrams[n]) <= maxTrigramShare {
			share *= s.of(trigrams[n])
			n++
		}
		if share > maxQueryShare {
			return nil
		}
		chosen = append(chosen, trigrams[:n])
	}
	return chosen
}

const shareCacheTime = time.Minute

// shareCache caches the server's statistics on trigrams.
type shareCache struct {
	mu     sync.Mutex
	shares trigramShares
	until  time.Time
}

func (c *shareCache) get(ctx context.Context, tx pgx.Tx) (trigramShares, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		return c.shares, nil
	}
	shares := trigramShares{common: map[int64]float64{}, least: 1}
	var trigram int64
	var share float64
	err := forEach(ctx, tx, []any{&trigram, &share}, func() error {
		shares.common[trigram], shares.least = share, min(shares.least, share)
		return nil
	}, `
SELECT e.trigram, e.share FROM pg_stats s
 CROSS JOIN LATERAL unnest(s.most_common_elems::text::bigint[], s.most_common_elem_freqs::float8[]) AS e (trigram, share)
 WHERE s.schemaname = 'belfry' AND s.tablename = 'jobs' AND s.attname = 'trigrams' AND e.trigram IS NOT NULL`)
	if err != nil {
		return trigramShares{}, err
	}
	c.shares, c.until = shares, time.Now().Add(shareCacheTime)
	return shares, nil
}
