// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cores are the protocol cores. A core is a package, or single files of a package whose other files
// do input and output.
var cores = []string{
	"internal/splitbrain",
	"internal/membership",
	"internal/singleton",
	"ddata/crdt",
	"internal/replication",
	"internal/outbox",
	"internal/engine",
	"internal/breaker/breaker.go",
	"internal/node",
	"internal/shardcore",
	"sharding/allocation",
	"internal/shardcore/coordinator",
	"internal/shardcore/groups",
	"sharding/passivation",
	"internal/shardcore/passivation",
	"internal/shardcore/region",
	"internal/shardcore/shard",
	"internal/shardcore/stored",
	"internal/link",
}

// ambient are the packages that a core must not import. The subpackages of these packages are also
// forbidden.
var ambient = []string{
	"bufio", "context", "crypto/rand", "database", "log", "math/rand", "net", "os", "runtime", "sync", "syscall", "testing",
}

// clock are the functions of package time that read or wait for the clock.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func TestCoresArePure(t *testing.T) {
	t.Parallel()
	for _, core := range cores {
		files := goFiles(t, core)
		if len(files) == 0 {
			t.Errorf("%s has no Go files", core)
		}
		for _, path := range files {
			checkPure(t, path)
		}
	}
}

// TestPureCheckFindsEachOffence checks that each forbidden construct is found.
func TestPureCheckFindsEachOffence(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"goroutine":     "func f() { go f() }",
		"select":        "func f() { select {} }",
		"channel":       "func f(c chan int) {}",
		"send":          "func f(c C) { c <- 1 }",
		"receive":       "func f(c C) { <-c }",
		"variable":      "var cache = 1",
		"init":          "func init() {}",
		"context":       `import "context"; var _ context.Context`,
		"atomic":        `import "sync/atomic"; type T struct { n atomic.Int64 }`,
		"global random": `import "math/rand"; type T struct { r rand.Rand }`,
		"random":        `import "math/rand/v2"; func f() int { return rand.IntN(3) }`,
		"clock":         `import "time"; func f() time.Time { return time.Now() }`,
		"renamed clock": `import clock "time"; func f() clock.Time { return clock.Now() }`,
		"print":         `import "fmt"; func f() { fmt.Println() }`,
		"built-in":      "func f() { println() }",
	} {
		path := filepath.Join(t.TempDir(), "core.go")
		if err := os.WriteFile(path, []byte("package core; "+source), 0o600); err != nil {
			t.Fatal(err)
		}
		if len(offences(t, path)) == 0 {
			t.Errorf("%s: no offence was found in %q, want at least 1", name, source)
		}
	}
	path := filepath.Join(t.TempDir(), "core.go")
	source := `package core; import ("errors"; "math/rand/v2"; "time"); var ErrX = errors.New("x"); var _ = ErrX; func f(r *rand.Rand, now time.Time) int { return r.IntN(3) }`
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := offences(t, path); len(found) > 0 {
		t.Errorf("a pure file has the offences %v, want none", found)
	}
}

func checkPure(t *testing.T, path string) {
	t.Helper()
	for _, offence := range offences(t, path) {
		t.Errorf("%s in a pure core, want none", offence)
	}
}

func offences(t *testing.T, path string) []string {
	t.Helper()
	fset, f := parse(t, path)
	var found []string
	report := func(at token.Pos, subject string) { found = append(found, fset.Position(at).String()+": "+subject) }
	for _, spec := range f.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		if imported != "math/rand/v2" && slices.ContainsFunc(ambient, func(dir string) bool { return within(imported, dir) }) {
			report(spec.Pos(), "import of "+imported)
		}
	}
	for _, decl := range f.Decls {
		for _, name := range variables(decl) {
			report(name.Pos(), "package-level variable "+name.Name)
		}
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			report(f.Pos(), "func init")
		}
	}
	times, random, prints := importName(f, "time"), importName(f, "math/rand/v2"), importName(f, "fmt")
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
			report(n.Pos(), "goroutine or channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				report(n.Pos(), "receive from a channel")
			}
		case *ast.CallExpr:
			switch fun := n.Fun.(type) {
			case *ast.Ident:
				if fun.Name == "print" || fun.Name == "println" {
					report(n.Pos(), fun.Name)
				}
			case *ast.SelectorExpr:
				called := fun.Sel.Name
				if selects(fun, times, called) && slices.Contains(clock, called) {
					report(n.Pos(), "time."+called)
				}
				if selects(fun, random, called) && !strings.HasPrefix(called, "New") {
					report(n.Pos(), "rand."+called)
				}
				if selects(fun, prints, called) && strings.HasPrefix(called, "Print") {
					report(n.Pos(), "fmt."+called)
				}
			}
		}
		return true
	})
	return found
}

// variables returns the package-level variables of a declaration, except errors and interface
// assertions.
func variables(decl ast.Decl) []*ast.Ident {
	g, ok := decl.(*ast.GenDecl)
	if !ok || g.Tok != token.VAR {
		return nil
	}
	var found []*ast.Ident
	for _, spec := range g.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names { //nolint:errcheck // a var has no other specs
			if name.Name != "_" && !strings.HasPrefix(name.Name, "Err") && !strings.HasPrefix(name.Name, "err") {
				found = append(found, name)
			}
		}
	}
	return found
}

// goFiles returns the Go files of a core, except tests.
func goFiles(t *testing.T, core string) []string {
	t.Helper()
	path := filepath.Join(root, core)
	if strings.HasSuffix(path, ".go") {
		return []string{path}
	}
	all, err := filepath.Glob(filepath.Join(path, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}
