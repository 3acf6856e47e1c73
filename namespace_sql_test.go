package belfry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sqlTexts are the strings of a package that name a table with a namespace, by file and the
// declaration that they are in, as in "postgres/jobs.go lockPlan".
type sqlTexts map[string][]string

var (
	createTable = regexp.MustCompile(`(?s)CREATE TABLE belfry\.(\w+) \((.*?)\n\)`)
	hasColumn   = regexp.MustCompile(`(?m)^ *namespace +text`)
	inserts     = regexp.MustCompile(`INSERT (OR \w+ )?INTO [\w.]+( AS \w+)? \([^)]*\bnamespace\b`)
	compares    = regexp.MustCompile(`\bnamespace(::text)? (=|>=) `) // in an index, a range may begin with the namespace
)

// namespaceTablesOf lists the tables that have a namespace, by the migrations.
func namespaceTablesOf(t *testing.T) (tables []string) {
	t.Helper()
	paths, err := filepath.Glob("internal/store/postgres/migrations/*.sql")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	for _, path := range paths {
		script, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range createTable.FindAllStringSubmatch(string(script), -1) {
			if hasColumn.MatchString(table[2]) {
				tables = append(tables, table[1])
			}
		}
	}
	return tables
}

// reader finds the texts of a package.
type sqlReader struct {
	constants map[string]ast.Expr // of the package, by name
	found     sqlTexts
	names     *regexp.Regexp // of tables
}

// text is what is known of a string: literals and constants; anything else is "…".
func (r *sqlReader) text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		return r.text(e.X) + r.text(e.Y)
	case *ast.ParenExpr:
		return r.text(e.X)
	case *ast.Ident:
		if value := r.constants[e.Name]; value != nil {
			return r.text(value)
		}
	}
	return "…"
}

// add finds the texts in a declaration. A constant that is part of others counts in them only.
func (r *sqlReader) add(place string, declaration ast.Node, parts map[string]bool) {
	ast.Inspect(declaration, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			return len(n.Names) != 1 || !parts[n.Names[0].Name]
		case *ast.BinaryExpr, *ast.BasicLit:
			if text := r.text(n.(ast.Expr)); r.names.MatchString(text) {
				r.found[place] = append(r.found[place], text)
			}
			_, whole := n.(*ast.BinaryExpr)
			return !whole
		}
		return true
	})
}

// partsOf lists the constants that other strings are made of.
func partsOf(file *ast.File, parts map[string]bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		if sum, ok := n.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
			for _, side := range []ast.Expr{sum.X, sum.Y} {
				if name, ok := side.(*ast.Ident); ok {
					parts[name.Name] = true
				}
			}
		}
		return true
	})
}

func sqlTextsOf(files map[string]*ast.File, tables []string) sqlTexts {
	r := sqlReader{map[string]ast.Expr{}, sqlTexts{}, regexp.MustCompile(`\b(FROM|JOIN|INTO|UPDATE) (belfry\.)?(` + strings.Join(tables, "|") + `)\b`)}
	parts := map[string]bool{}
	for _, file := range files {
		partsOf(file, parts)
		for _, d := range file.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok && len(value.Values) == len(value.Names) {
					for i, name := range value.Names {
						r.constants[name.Name] = value.Values[i]
					}
				}
			}
		}
	}
	for path, file := range files {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				r.add(path+" "+d.Name.Name, d, parts)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if value, ok := spec.(*ast.ValueSpec); ok {
						r.add(path+" "+value.Names[0].Name, value, parts)
					}
				}
			}
		}
	}
	return r.found
}

func parsePackage(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	paths, _ := filepath.Glob("internal/store/" + dir + "/*.go")
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[dir+"/"+filepath.Base(path)] = file
	}
	if len(files) == 0 {
		t.Fatalf("there is no package %s", dir)
	}
	return files
}

// namesNamespace reports whether a statement is about one namespace.
func namesNamespace(text string) bool { return compares.MatchString(text) || inserts.MatchString(text) }

const exceptionsFile = "testdata/sql_without_namespace.txt"

// exceptions are how many statements may be without a namespace, by place. Each stands under a
// line that begins with # and gives the reason.
func exceptions(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(exceptionsFile)
	if err != nil {
		t.Fatal(err)
	}
	listed, reason := map[string]int{}, false
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 0 && fields[0] == "#":
			reason = len(fields) > 3
		case len(fields) == 3 && reason:
			listed[fields[0]+" "+fields[1]], err = strconv.Atoi(fields[2])
		case len(fields) > 0:
			t.Errorf("%s: %q is not under a reason, or not a file, a declaration and a number", exceptionsFile, strings.TrimSpace(line))
		}
		if err != nil {
			t.Errorf("%s: %v", exceptionsFile, err)
		}
	}
	return listed
}

// Tenants share tables. A statement about one of these tables compares the namespace, writes it, or
// is listed with the reason why it need not.
func TestStatementsNameTheNamespace(t *testing.T) {
	tables := namespaceTablesOf(t)
	if !slices.Contains(tables, "jobs") || !slices.Contains(tables, "activity") || slices.Contains(tables, "plans") {
		t.Fatalf("the tables with a namespace are %q", tables)
	}
	listed, total := exceptions(t), 0
	for _, dir := range []string{"postgres", "sqlite", "sqlstore"} {
		for place, texts := range sqlTextsOf(parsePackage(t, dir), tables) {
			total += len(texts)
			without := slices.DeleteFunc(texts, namesNamespace)
			if len(without) > listed[place] {
				t.Errorf("%s: %d statements do not name the namespace, %d may; add `namespace = …`, or the place to %s with a reason:\n%s", place, len(without), listed[place], exceptionsFile, strings.Join(without, "\n"))
			}
			if listed[place] -= len(without); listed[place] > 0 {
				t.Errorf("%s: %s allows %d statements more than there are", place, exceptionsFile, listed[place])
			}
			delete(listed, place)
		}
	}
	for place := range listed {
		t.Errorf("%s: in %s, but there is no such statement", place, exceptionsFile)
	}
	if total < 200 {
		t.Errorf("only %d statements were found: the test shows nothing", total)
	}
}

// The test above finds statements that are added.
func TestStatementsWithoutANamespaceAreFound(t *testing.T) {
	for source, want := range map[string]bool{
		"func f() { q(`SELECT id FROM belfry.jobs WHERE id = $1`) }":                                         true,
		"func f() { q(`DELETE FROM runs WHERE id = ?`) }":                                                    true,
		"const c = `SELECT id, namespace FROM runs WHERE id = ?`\nfunc f() { q(c) }":                         true,
		"const c = `SELECT id FROM runs `\nfunc f() { q(c+`WHERE id = ?`) }":                                 true,
		"const c = `SELECT id FROM runs `\nfunc f() { q(c+`WHERE namespace = ? AND id = ?`) }":               false,
		"const w = `WHERE namespace = ?`\nfunc f() { q(`/* x */ `+`SELECT id FROM belfry.dead `+w) }":        false,
		"func f() { q(`INSERT INTO events (id, at) VALUES (?, ?)`) }":                                        true,
		"func f() { q(`INSERT INTO events (id, namespace, at) VALUES (?, ?, ?)`) }":                          false,
		"func f() { q(`UPDATE belfry.plans SET digest = $1`) }":                                              false, // no such column
		"func f(t string) { q(`SELECT x.id FROM jobs x JOIN runs r ON r.job_id = x.id WHERE x.id = `+t) }":   true,
		"var v = map[string]string{`a`: `SELECT count(*) FROM history`}":                                     true,
		"func f() { q(fmt.Sprintf(`SELECT id FROM belfry.alerts WHERE %s`, condition)) }":                    true,
		"func f() { q(`SELECT id FROM belfry.jobs WHERE namespace = $1 AND id = $2`, namespace, uuid(id)) }": false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := false
		for _, texts := range sqlTextsOf(map[string]*ast.File{"x.go": file}, namespaceTablesOf(t)) {
			got = got || slices.ContainsFunc(texts, func(text string) bool { return !namesNamespace(text) })
		}
		if got != want {
			t.Errorf("%s: found is %v, want %v", source, got, want)
		}
	}
}
