// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package exportdata imports compiled packages into go/types, for tests that type-check programs.
package exportdata

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/testkit/effort"
)

// Importer returns an importer of the packages and of all their dependencies. It reads the build
// cache. The packages are built like the calling test: with the race detector if the test uses it.
// The build cache then has them already from the other tests. The importer must not be used
// concurrently.
func Importer(tb testing.TB, packages ...string) types.Importer {
	tb.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	if effort.Race() {
		args = append(args, "-race")
	}
	list := exec.CommandContext(tb.Context(), "go", append(args, packages...)...) //nolint:gosec // arguments of the test
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		tb.Fatalf("list the dependencies: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("exportdata: package %s is not a dependency", path)
		}
		return os.Open(files[path])
	})
}
