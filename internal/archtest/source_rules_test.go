// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"bytes"
	"errors"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	header = "// Copyright 2026 The Refold Authors\n// SPDX-License-Identifier: Apache-2.0\n\n"

	maxLines = 900
	maxBytes = 1 << 20
)

// eachFile calls f with the path of each Go file of the module.
func eachFile(t *testing.T, f func(p *pkg, path string, test bool)) {
	t.Helper()
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			f(p, filepath.Join(p.Dir, name), false)
		}
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			f(p, filepath.Join(p.Dir, name), true)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLicenceHeaders(t *testing.T) {
	t.Parallel()
	eachFile(t, func(_ *pkg, path string, _ bool) {
		data := read(t, path)
		if generated := bytes.HasPrefix(data, []byte("// Code generated")); !generated && !bytes.HasPrefix(data, []byte(header)) {
			t.Errorf("%s does not begin with the licence header: two lines and an empty line", path)
		}
	})
}

func TestFileLength(t *testing.T) {
	t.Parallel()
	eachFile(t, func(_ *pkg, path string, test bool) {
		if lines := bytes.Count(read(t, path), []byte("\n")); lines > maxLines && !test {
			t.Errorf("%s has %d lines, want at most %d", path, lines, maxLines)
		}
	})
}

// A program or an image that is committed by mistake stays in the history of the repository.
func TestFileSize(t *testing.T) {
	t.Parallel()
	for _, name := range trackedFiles(t) {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed and not committed yet
			t.Fatal(err)
		}
		if err == nil && info.Size() > maxBytes {
			t.Errorf("%s has %d bytes, want at most %d", name, info.Size(), maxBytes)
		}
	}
}

// Each package has a package comment: in doc.go, or in the main file of a small package.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue // the package has only tests
		}
		documented := slices.ContainsFunc(p.GoFiles, func(name string) bool {
			_, f := parse(t, filepath.Join(p.Dir, name))
			return f.Doc != nil && len(f.Doc.Text()) >= 40
		})
		if !documented {
			t.Errorf("%s has no package comment of at least 40 characters", p.path())
		}
	}
}

// Tests wait for events, not for time. In a bubble of testing/synctest, sleeping only advances the
// fake clock.
func TestTestsNeitherSleepNorSkip(t *testing.T) {
	t.Parallel()
	eachFile(t, func(p *pkg, path string, test bool) {
		if !test && !isSuite(p.path()) {
			return
		}
		fset, f := parse(t, path)
		times, bubble := importName(f, "time"), importName(f, "testing/synctest") != ""
		ast.Inspect(f, func(n ast.Node) bool {
			if selects(n, times, "Sleep") && !bubble {
				t.Errorf("%s: time.Sleep outside of a synctest bubble, want a wait for an event", fset.Position(n.Pos()))
			}
			if call, ok := n.(*ast.CallExpr); ok {
				for _, skip := range []string{"Skip", "Skipf", "SkipNow"} {
					if selects(call.Fun, "t", skip) || selects(call.Fun, "b", skip) || selects(call.Fun, "tb", skip) || selects(call.Fun, "f", skip) {
						t.Errorf("%s: %s: a test that cannot run must fail and report the reason", fset.Position(n.Pos()), skip)
					}
				}
			}
			return true
		})
	})
}

// Open work is recorded in issues, not in the code.
func TestNoOpenWork(t *testing.T) {
	t.Parallel()
	marks := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X:", "HA" + "CK"}
	eachFile(t, func(_ *pkg, path string, _ bool) {
		for i, line := range strings.Split(string(read(t, path)), "\n") {
			_, comment, _ := strings.Cut(line, "//")
			for _, mark := range marks {
				if strings.Contains(comment, mark) {
					t.Errorf("%s:%d: the comment contains %s, want an issue instead", path, i+1, mark)
				}
			}
		}
	})
}
