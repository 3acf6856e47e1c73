package secretstore

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// A method of the store that returns what may be encrypted has one here that decrypts it.
func TestWhatIsEncryptedIsDecrypted(t *testing.T) {
	encrypted := []reflect.Type{
		reflect.TypeFor[[]*belfry.Run](), reflect.TypeFor[store.FireResult](), reflect.TypeFor[belfry.Job](), reflect.TypeFor[store.JobList](),
		reflect.TypeFor[[]belfry.Revision](), reflect.TypeFor[belfry.DeadLetter](), reflect.TypeFor[store.SecretRecord](), reflect.TypeFor[[]store.SecretRecord](),
		reflect.TypeFor[[]belfry.Channel](),
	}
	checked := 0
	for m := range reflect.TypeFor[store.Store]().Methods() {
		if !slices.ContainsFunc(slices.Collect(m.Type.Outs()), func(out reflect.Type) bool { return slices.Contains(encrypted, out) }) {
			continue
		}
		checked++
		own, _ := reflect.TypeFor[*Store]().MethodByName(m.Name)
		if file, _ := runtime.FuncForPC(own.Func.Pointer()).FileLine(own.Func.Pointer()); !strings.Contains(file, "secretstore") {
			t.Errorf("%s is that of the database, and returns what is encrypted", m.Name)
		}
	}
	if checked < 10 {
		t.Errorf("only %d methods return what is encrypted", checked)
	}
}
