package belfry_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Files and functions that are longer than is good, and why.
const (
	maxFileLines     = 400
	maxFunctionLines = 80
)

var (
	longFiles     = map[string]string{} // path in the module: reason
	longFunctions = map[string]string{} // "path function": reason
)

func TestEveryPackageHasOneDocComment(t *testing.T) {
	for _, p := range packages(t) {
		files := p.production
		if len(files) == 0 {
			files = p.tests
		}
		var documented []string
		for _, f := range files {
			if f.ast.Doc == nil {
				continue
			}
			documented = append(documented, f.path)
			begin := "Package " + f.ast.Name.Name + " "
			if f.ast.Name.Name == "main" {
				begin = "Command " + filepath.Base(p.name) + " "
			}
			if text := f.ast.Doc.Text(); !strings.HasPrefix(text, begin) {
				t.Errorf("%s: the doc comment begins with %.40q, want %q", f.path, text, begin)
			}
		}
		if len(documented) != 1 {
			t.Errorf("package %s has %d doc comments, want one: %v", p.name, len(documented), documented)
		}
	}
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.production {
			if n := f.set.File(f.ast.Pos()).LineCount(); n > maxFileLines && longFiles[f.path] == "" {
				t.Errorf("%s has %d lines, the most is %d: split it, or list it with a reason", f.path, n, maxFileLines)
			}
			for _, decl := range f.ast.Decls {
				function, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				n := f.set.Position(function.End()).Line - f.set.Position(function.Pos()).Line + 1
				if n > maxFunctionLines && longFunctions[f.path+" "+function.Name.Name] == "" {
					t.Errorf("%s: %s has %d lines, the most is %d: split it, or list it with a reason", f.path, function.Name.Name, n, maxFunctionLines)
				}
			}
		}
	}
}

// retiredWords are words of an earlier private vocabulary and the standard terms that
// replaced them. No identifier and no file name may contain one of them as a word.
var retiredWords = map[string]string{
	"door": "middleware, cli", "sight": "job status row", "sights": "job status row", "bow": "archive", "retire": "archive", "insist": "retry unknown outcomes",
	"vain": "misses", "lull": "interval", "examiner": "validator", "examination": "validation", "examine": "validate", "tally": "attempt counts", "beat": "heartbeat",
	"wish": "pending trigger", "wishes": "pending triggers", "picking": "search", "aftermath": "follow-ups", "beside": "note", "besides": "note",
	"wanted": "normalized", "misplaced": "file error", "unfolding": "yaml to json", "told": "exit code error", "flaw": "syntax error",
	"useless": "retryable", "waller": "wall-clock rule", "forget": "delete", "bury": "archive", "hear": "receive", "poke": "wake", "news": "changes",
	"fault": "field error", "faults": "field errors", "refusal": "http error", "hopeless": "permanent error", "parked": "quarantined", "park": "quarantine",
	"draft": "manifest", "rezone": "zone update", "mended": "recovered", "healed": "recovered", "shaken": "recovered", "orders": "reply", "listed": "complete",
}

// wordsWithOtherMeaning are identifiers that contain a retired word in its ordinary
// meaning.
var wordsWithOtherMeaning = map[string]bool{}

func TestIdentifiersUseTheFieldsWords(t *testing.T) {
	refuse := func(where, name string) {
		if wordsWithOtherMeaning[name] {
			return
		}
		for _, word := range wordsOf(name) {
			if instead := retiredWords[word]; instead != "" {
				t.Errorf("%s: %q contains %q: say %s", where, name, word, instead)
			}
		}
	}
	for _, p := range packages(t) {
		for _, f := range slices.Concat(p.production, p.tests) {
			refuse(f.path, strings.TrimSuffix(filepath.Base(f.path), ".go"))
		}
		for _, f := range p.production {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Obj != nil && id.Obj.Pos() == id.Pos() || isDeclaration(n) {
					refuse(f.set.Position(n.Pos()).String(), declaredName(n))
				}
				return true
			})
		}
	}
}

// isDeclaration reports whether a node declares a name that ast.Ident.Obj does not know:
// a method.
func isDeclaration(n ast.Node) bool {
	f, ok := n.(*ast.FuncDecl)
	return ok && f.Recv != nil
}

func declaredName(n ast.Node) string {
	if f, ok := n.(*ast.FuncDecl); ok {
		return f.Name.Name
	}
	return n.(*ast.Ident).Name
}

var wordEnd = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// wordsOf splits an identifier or file name into its words, in lower case.
func wordsOf(name string) []string {
	name = wordEnd.ReplaceAllString(name, "${1}${3}_${2}${4}")
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '-' || r == '.' })
}

func TestWordsOfAnIdentifier(t *testing.T) {
	for name, want := range map[string]string{"jobStatusRow": "job status row", "HTTPError": "http error", "newID": "new id", "job_list_test": "job list test", "x": "x"} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// Files that only one of the stores has, because the thing exists in one database alone.
var storeFiles = map[string]string{
	"disk_bsd.go": "file system checks", "disk_linux.go": "file system checks", "disk_other.go": "file system checks",
	"lock_other.go": "file lock", "lock_unix.go": "file lock", "job_search.go": "choice among indexes",
	"pool.go": "connections to a server", "connect.go": "connections to a server", "fire_statement.go": "two statements that fire", "recover.go": "what a killed process left",
	"fire_batch.go": "statements for many rows", "finish_batch.go": "statements for many rows",
}

func TestStoresHaveTheSameFiles(t *testing.T) {
	files := func(folder string) map[string]bool {
		found := map[string]bool{}
		for _, p := range packages(t) {
			for _, f := range p.production {
				if dir, name := filepath.Split(f.path); dir == folder {
					found[name] = true
				}
			}
		}
		return found
	}
	postgres, sqlite := files("internal/store/postgres/"), files("internal/store/sqlite/")
	if len(postgres) == 0 || len(sqlite) == 0 {
		t.Fatal("a store has no files: the test looks in the wrong place")
	}
	for name := range postgres {
		if !sqlite[name] && storeFiles[name] == "" {
			t.Errorf("only postgres has %s", name)
		}
	}
	for name := range sqlite {
		if !postgres[name] && storeFiles[name] == "" {
			t.Errorf("only sqlite has %s", name)
		}
	}
}

// transactionTime finds what PostgreSQL answers with the start of the transaction
// or statement, which lies in the past after a wait for a lock.
var transactionTime = regexp.MustCompile(`(?i)\b((now|transaction_timestamp|statement_timestamp)\s*\(\s*\)|(current|local)_?timestamp\b)`)

var sqlComment = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/`)

func TestPostgresIsAskedForTheTimeOfTheClock(t *testing.T) {
	const folder = "internal/store/postgres"
	check := func(where, sql string) {
		if found := transactionTime.FindString(sqlComment.ReplaceAllString(sql, " ")); found != "" {
			t.Errorf("%s asks for %s, which is not the time: use clock_timestamp()", where, found)
		}
	}
	seen := false
	for _, p := range packages(t) {
		if p.name != folder && p.name != "internal/store/sqlstore" {
			continue
		}
		for _, f := range p.production {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
					seen = seen || strings.Contains(text.Value, "clock_timestamp()")
					check(f.set.Position(text.Pos()).String(), text.Value)
				}
				return true
			})
		}
	}
	if !seen {
		t.Errorf("no statement in %s asks for the time: the test looks in the wrong place", folder)
	}
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".sql" {
			return err
		}
		sql, err := os.ReadFile(path)
		check(path, string(sql))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheTimeOfATransactionIsRecognised(t *testing.T) {
	for sql, want := range map[string]bool{
		"SELECT now()":                             true,
		"SET at = NOW( ) + $1":                     true,
		"DEFAULT CURRENT_TIMESTAMP":                true,
		"select localtimestamp":                    true,
		"select transaction_timestamp()":           true,
		"SELECT clock_timestamp()":                 false,
		"SELECT 1 -- now() would lie":              false,
		"/* now() would\nlie */ SELECT a_now()":    false,
		"SELECT current_timestamps, unknown_now()": false,
	} {
		if got := transactionTime.MatchString(sqlComment.ReplaceAllString(sql, " ")); got != want {
			t.Errorf("%q: got %v, want %v", sql, got, want)
		}
	}
}

// pkg is a package of the module with its files for all operating systems.
type pkg struct {
	name              string // its path in the module, or "belfry" for the module's own
	production, tests []file
}

type file struct {
	path string // in the module
	set  *token.FileSet
	ast  *ast.File
}

func packages(t *testing.T) []pkg {
	t.Helper()
	found, err := readPackages()
	if err != nil {
		t.Fatalf("read the packages of the module: %v", err)
	}
	return found
}

// readPackages asks the go command for the packages of the module and parses
// their files.
var readPackages = sync.OnceValues(func() ([]pkg, error) {
	if err := watchFolders(); err != nil {
		return nil, err
	}
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("go list: %w: %s", err, exit.Stderr)
	} else if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var found []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listing
		if err := d.Decode(&l); err == io.EOF {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("what go list says: %w", err)
		}
		p, err := l.parse(root)
		if err != nil {
			return nil, err
		}
		found = append(found, p)
	}
})

// watchFolders looks into every folder, so that the cache of go test, which does
// not see what the go command reads for us, notices new files and packages.
func watchFolders() error {
	return filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(path) > 1 && path[0] == '.' {
			return fs.SkipDir
		}
		return err
	})
}

// listing is what the go command says of a package.
type listing struct {
	ImportPath, Dir                   string
	GoFiles, CgoFiles, IgnoredGoFiles []string
	TestGoFiles, XTestGoFiles         []string
}

func (l listing) parse(root string) (pkg, error) {
	p := pkg{name: "belfry"}
	if l.ImportPath != module {
		p.name = strings.TrimPrefix(l.ImportPath, module+"/")
	}
	for _, name := range slices.Concat(l.GoFiles, l.CgoFiles, l.IgnoredGoFiles, l.TestGoFiles, l.XTestGoFiles) {
		path, err := filepath.Rel(root, filepath.Join(l.Dir, name))
		if err != nil {
			return p, err
		}
		f := file{path: filepath.ToSlash(path), set: token.NewFileSet()}
		if f.ast, err = parser.ParseFile(f.set, path, nil, parser.ParseComments); err != nil {
			return p, err
		}
		if strings.HasSuffix(name, "_test.go") {
			p.tests = append(p.tests, f)
		} else {
			p.production = append(p.production, f)
		}
	}
	return p, nil
}

// Migrations that databases have been created with. A change of the schema is a new one.
var appliedMigrations = map[string]string{
	"internal/store/postgres/migrations/0001_initial.sql":    "6cccdb52c39d2a5e78c1d513e178edb40f4b804c5cddd8c425a5b256f1dfd428",
	"internal/store/postgres/migrations/0002_scheduling.sql": "3e178a8c1dd40ca4f3467116184e794a31ca4bf0a6983ed08dc77c19e3d18e5b",
	"internal/store/postgres/migrations/0003_speed.sql":      "1b6c01513d8ba881e8d3b810608541519ef3a57d958683b92303b4c87dbad93c",
	"internal/store/postgres/migrations/0004_size.sql":       "85b21892fdcadc80782240cc1ec0c787d45d227fecb5363cb01f959e5a284de6",
	"internal/store/postgres/migrations/0005_traces.sql":     "3fca4434f9c528e3dc657fe335bf5ccda96ca10e95ac9f8e484e6ac792b94aab",
	"internal/store/postgres/migrations/0006_monitors.sql":   "0ac138e3da09ebf633edd02ebfaa8baeb4efe4db5bd9cd79a2913b1d8ebf602d",
	"internal/store/postgres/migrations/0007_logs.sql":       "a84081342d368353abc4946e4c5ae8e8face007d1c2555a42aa26c13f60036c1",
	"internal/store/postgres/migrations/0008_alerts.sql":     "3b006f6b922d0f58e843dab8a69e899ccb72370d6ac3fd4f1624fc40b65f57f0",
	"internal/store/postgres/migrations/0009_events.sql":     "a4ee8ced6a03a2258f8e35aef5e49faeb9914034294a60697c5750d6f7cd159b",
	"internal/store/postgres/migrations/0010_fleet.sql":      "02728c4a383e6c1ae49bb5f8dc105986d4c14354420020e4f5a72bcd13138d2a",
	"internal/store/postgres/migrations/0011_page.sql":       "43144ccc667493153aefb7da51598542e39cc056096374554c82be5be9d84b24",
	"internal/store/postgres/migrations/0012_namespaces.sql": "58720f530b6220211e0da9f80d114091bdc3d15474dcf36cbadd258d7e17d3b4",
	"internal/store/sqlite/migrations/0001_initial.sql":      "1e677e0bc0bdd7c03266bb3a8f5562ff76c207706eefd3463fc2d519d5407639",
	"internal/store/sqlite/migrations/0002_scheduling.sql":   "f6087eb35e0a31c8d402168735036339e544188d7b63fec50191df704c65ad83",
	"internal/store/sqlite/migrations/0003_speed.sql":        "34c139deea1ac164f70c83a5ee49d484822dd3c58a766c9e03614f33384620ba",
	"internal/store/sqlite/migrations/0004_traces.sql":       "dc77e85dc4479dd20b7acd20053264ba1c1d34a1234d95428ac6c4e79fbda401",
	"internal/store/sqlite/migrations/0005_monitors.sql":     "3f683995b7184651a56aa51f96f8b6d617c327949195534aebab990026f58762",
	"internal/store/sqlite/migrations/0006_logs.sql":         "8c22c67d0e25734588219f2d65493d5a1340ecc96d9c6aa2448f22987b40b38f",
	"internal/store/sqlite/migrations/0007_alerts.sql":       "a9e7da2f0d48826219cc48d3cf37cdde37640ea08a45487f66fa2dc2dceb8af4",
	"internal/store/sqlite/migrations/0008_events.sql":       "9e45c3a81963f6a0854b91e273b2d5e2550ba36fa940aec78936dbdaf14edac2",
	"internal/store/sqlite/migrations/0009_fleet.sql":        "f69cf867f2ae8878a214b4a69e2b0fe1ce20d63eb38a5e674a56c9ea97cda05c",
	"internal/store/sqlite/migrations/0010_page.sql":         "4a9312b9196bbd0b54e660dbf80212601b60a2fce91c746128516fa17cae662b",
	"internal/store/sqlite/migrations/0011_namespaces.sql":   "92dae61e01130908214fb22c797cd6a6d26466e2f3251d089c512eeb8fa74349",
}

func TestAppliedMigrationsDoNotChange(t *testing.T) {
	for path, want := range appliedMigrations {
		text, err := os.ReadFile(path)
		if got := fmt.Sprintf("%x", sha256.Sum256(text)); err != nil || got != want {
			t.Errorf("%s changed (%v): a database that was made with it would miss the change; write another migration", path, err)
		}
	}
}
