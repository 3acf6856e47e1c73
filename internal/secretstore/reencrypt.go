package secretstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
)

// stepRows is how many rows a step reads.
const stepRows = 300

// Reencrypt makes one step of a pass over everything that is encrypted or should be. The first
// step reads the file of keys again and encrypts the data keys with its first key, after which
// other keys are not needed. A namespace whose data key another key encrypted gets a new one. The
// others encrypt values with the newest data key of their namespace. A pass may be repeated and
// given up at any step.
func (s *Store) Reencrypt(ctx context.Context, after string) (out belfry.Reencryption, err error) {
	if s.keys == nil {
		return out, errNoKey
	}
	place, err := parsePlace(after)
	if err == nil && after == "" {
		err = s.rewrap(ctx)
	}
	if err != nil {
		return out, err
	}
	texts, err := s.EncryptedTexts(ctx, place, stepRows)
	if err != nil {
		return out, err
	}
	var changed []store.EncryptedText
	var by []string
	for _, text := range texts {
		sealed, err := s.reseal(ctx, text)
		switch {
		case isUnreadable(err):
			out.Failed++
		case err != nil:
			return out, err
		case sealed != text.Text:
			changed, by = append(changed, text), append(by, sealed)
		}
	}
	if changed != nil {
		if out.Changed, err = s.ReplaceTexts(ctx, changed, by); err != nil {
			return out, err
		}
	}
	out.Read = len(texts)
	if len(texts) == stepRows {
		out.After = placeText(texts[len(texts)-1].TextPlace)
	} else if i := slices.Index(store.TextTables, place.Table) + 1; i < len(store.TextTables) {
		out.After = placeText(store.TextPlace{Table: store.TextTables[i]})
	} else {
		err = s.rewrap(ctx) // namespaces that were new meanwhile
	}
	return out, err
}

// rewrap encrypts all data keys with the first key of the file.
func (s *Store) rewrap(ctx context.Context) error {
	if err := s.keys.Reload(); err != nil {
		return belfry.Errorf(belfry.Conflict, "--encryption-key-file: %w", err)
	}
	rows, err := s.DataKeys(ctx, "")
	if err != nil {
		return err
	}
	for i, row := range rows {
		if row.KeyID == s.keys.Current() {
			continue
		}
		raw, err := s.unwrap(row)
		if err != nil {
			return unreadable("a data key", err)
		}
		if i+1 == len(rows) || rows[i+1].Namespace != row.Namespace { // the latest of its namespace
			if err := s.SaveDataKeys(ctx, "", []store.DataKey{s.wrap(row.Namespace, row.Version+1, encrypt.NewDataKey())}); err != nil {
				return err
			}
		}
		if err := s.SaveDataKeys(ctx, row.KeyID, []store.DataKey{s.wrap(row.Namespace, row.Version, raw)}); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
	return nil
}

// reseal is a text encrypted with the newest data key; the same if it is already.
func (s *Store) reseal(ctx context.Context, text store.EncryptedText) (string, error) {
	if text.Namespace == "" {
		return text.Text, nil // the revision of a job that is gone
	}
	var opened string
	var seal func(*encrypt.DataKey) string
	switch text.Table {
	case "channels":
		var sealed belfry.Channel
		if json.Unmarshal([]byte(text.Text), &sealed) != nil {
			return "", encrypt.ErrAltered
		}
		sealed.Namespace, sealed.Name = text.Namespace, text.Name
		c, err := s.openChannel(ctx, sealed)
		if err != nil {
			return "", encrypt.ErrAltered
		}
		opened, seal = store.ChannelSpec(c), func(key *encrypt.DataKey) string { return store.ChannelSpec(s.sealChannel(key, c)) }
	case "secrets":
		value, err := s.open(ctx, text.Text, text.Namespace, "secret", text.Name)
		if err != nil {
			return "", err
		}
		opened, seal = string(value), func(key *encrypt.DataKey) string { return key.Seal(value, text.Namespace, "secret", text.Name) }
	default:
		payload, err := s.openPayload(ctx, text.Namespace, text.JobID, json.RawMessage(text.Text))
		if err != nil {
			return "", err
		}
		if string(payload) == text.Text && string(secret.Seal(payload, encrypt.Prefix, func([]byte) string { return "" })) == text.Text {
			return text.Text, nil // there are no secrets in it
		}
		opened, seal = string(payload), func(key *encrypt.DataKey) string {
			sealed, _ := sealPayload(key, text.Namespace, text.JobID, payload)
			return string(sealed)
		}
	}
	key, err := s.sealKey(ctx, text.Namespace)
	if err != nil {
		return "", err
	}
	sealed := seal(key)
	newest := encrypt.Prefix + strconv.Itoa(key.Version) + ":"
	if opened != text.Text && strings.Count(text.Text, newest) == strings.Count(sealed, newest) {
		return text.Text, nil
	}
	return sealed, nil
}

// placeText is a place as text. Names have no blanks.
func placeText(p store.TextPlace) string {
	return fmt.Sprintf("%s %s %d %s %s", p.Table, p.ID, p.Revision, p.Namespace, p.Name)
}

func parsePlace(text string) (p store.TextPlace, err error) {
	if text == "" {
		return store.TextPlace{Table: store.TextTables[0]}, nil
	}
	parts := strings.Split(text, " ")
	if len(parts) == 5 && slices.Contains(store.TextTables, parts[0]) {
		p = store.TextPlace{Table: parts[0], Namespace: parts[3], Name: parts[4]}
		if p.ID, err = belfry.ParseID(parts[1]); err == nil {
			p.Revision, err = strconv.Atoi(parts[2])
		}
	}
	if p.Table == "" || err != nil {
		return p, &belfry.Error{Code: belfry.Invalid, Message: "the request is not valid", Fields: []belfry.FieldError{{Field: "after", Message: "is not what an earlier step answered"}}}
	}
	return p, nil
}
