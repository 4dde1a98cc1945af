// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inherited are the third-party modules in the binary of a program that imports only eventsourcing.
var inherited = []string{
	"github.com/vmihailenco/msgpack/v5",
	"github.com/vmihailenco/tagparser/v2",
}

// testOnly are modules for tests. Only conformance suites and tests may import them.
var testOnly = []string{
	"github.com/Shopify/toxiproxy",
	"github.com/anishathalye/porcupine",
	"github.com/cockroachdb/datadriven",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
	"testing",
}

// homes maps a module to the packages that may import it, with their subpackages. Tests may import
// any module.
var homes = map[string][]string{
	"github.com/alecthomas/kong":     {"cmd", "examples"},
	"github.com/jackc/pgx":           {"plugins/postgres", "internal/test", "examples", "docs", "cmd"},
	"github.com/nats-io/nats-server": {"plugins/nats/embedded", "internal/test", "examples", "cmd"},
	"github.com/nats-io/nats.go":     {"plugins/nats", "internal/test", "examples", "cmd"},
	"github.com/prometheus":          {"examples/bank"},
	"github.com/syndtr/goleveldb":    {"plugins/leveldb", "cmd"},
	"github.com/vmihailenco/msgpack": {"codec", "delivery", "cmd", "internal/inspect"},
	"go.opentelemetry.io/otel":       {"plugins/otel", "cmd", "examples"},
	"golang.org/x/crypto":            {"console", "cmd"},
	"golang.org/x/term":              {"cmd", "examples/bank", "internal/sim/run"},
}

func TestDependenciesOfUsers(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./eventsourcing")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		third := !own(path) && !slices.ContainsFunc(inherited, func(module string) bool { return within(path, module) })
		if third || within(below(path), "plugins") {
			t.Errorf("eventsourcing depends on %s, want only the modules in inherited and no plugin", path)
		}
	}
}

func TestTestModules(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if isSuite(p.path()) {
			continue
		}
		for _, imported := range p.Imports {
			if slices.ContainsFunc(testOnly, func(module string) bool { return within(imported, module) }) {
				t.Errorf("%s imports %s, which only tests and conformance suites may import", p.path(), imported)
			}
		}
	}
}

func TestModuleImporters(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			for module, dirs := range homes {
				if strings.HasPrefix(imported, module) && !slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(p.path(), dir) }) {
					t.Errorf("%s imports %s, but only %v may import it", p.path(), imported, dirs)
				}
			}
		}
	}
}

// docs/dependencies.md explains each direct requirement of go.mod.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages(t) {
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if first := top(imported); !own(imported) && strings.Contains(first, ".") && !explained(string(page), imported) {
				t.Errorf("%s imports %s, which docs/dependencies.md does not mention", p.path(), imported)
			}
		}
	}
}

// explained reports whether a page names an import path or a parent of it in code style.
func explained(page, path string) bool {
	for {
		if strings.Contains(page, "`"+path+"`") {
			return true
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return false
		}
		path = path[:i]
	}
}
