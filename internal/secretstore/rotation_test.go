package secretstore

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/store"
)

// A namespace that is new while a key is replaced is read by a node that does not have the new key yet,
// and by one that has lost the old one, although the node that makes it has not met the new key.
func TestNewNamespacesWhileAKeyIsReplaced(t *testing.T) {
	eachStore(t, func(t *testing.T, raw store.Store) {
		line := func() string { return base64.StdEncoding.EncodeToString(encrypt.NewDataKey()) + "\n" }
		older, newer := line(), line()
		dir := t.TempDir()
		write := func(node, text string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, node), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		start := func(node string) *Store {
			t.Helper()
			keys, err := encrypt.LoadKeys(filepath.Join(dir, node))
			if err != nil {
				t.Fatal(err)
			}
			return open(t, raw, keys)
		}
		const payload = `{"token":"` + canary + `"}`
		shared := func(namespace string, by, reader *Store) {
			t.Helper()
			if got := payloadOf(t, reader, namespace, create(t, by, namespace, "job", payload)); got != payload {
				t.Errorf("the namespace %s: got %s", namespace, got)
			}
		}
		write("first", older)
		write("second", older)
		first, second := start("first"), start("second")
		create(t, first, "known", "job", payload)
		write("first", newer+older)
		first = start("first") // again, with the new key before the other node
		shared("early", first, second)
		write("second", newer+older)
		reencrypt(t, first)
		write("first", newer)
		write("second", newer)
		shared("late", second, start("first"))
	})
}
