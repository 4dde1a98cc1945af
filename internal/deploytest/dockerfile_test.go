// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package deploytest_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// readFile returns a file of the repository.
func readFile(tb testing.TB, name string) string {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// instructions returns the lines of a Dockerfile without comments and empty lines.
func instructions(text string) (all []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// building lets the first test compile the packages, which the others find in the build cache.
var building sync.Mutex

// buildBank runs the build command of the Dockerfile and returns the path of the program.
func buildBank(tb testing.TB) string {
	tb.Helper()
	building.Lock()
	defer building.Unlock()
	var command string
	for _, line := range instructions(readFile(tb, "deploy/Dockerfile")) {
		if strings.HasPrefix(line, "RUN ") && strings.Contains(line, "go build") {
			command = strings.TrimPrefix(line, "RUN ")
		}
	}
	if !strings.Contains(command, "-o /out/bank ") {
		tb.Fatalf("the build command of the Dockerfile is %q, want one that writes /out/bank", command)
	}
	program := filepath.Join(tb.TempDir(), "bank")
	build := exec.CommandContext(tb.Context(), "sh", "-c", strings.Replace(command, "/out/bank", program, 1))
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v: %s", command, err, out)
	}
	return program
}

// The Dockerfile builds a static program with the Go version of go.mod, and the image starts it as a
// user other than root. It differs from the Dockerfile of "refold new" only in names and arguments.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	lines := instructions(readFile(t, "deploy/Dockerfile"))
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))[1]

	rendered := readFile(t, "cmd/refold/template/Dockerfile.tmpl")
	rendered = regexp.MustCompile(`(?s)\{\{-? ?if not \.Postgres\}\}.*?\{\{-? ?end\}\}`).ReplaceAllString(rendered, "")
	rendered = strings.NewReplacer("{{.Image}}", version, "{{.Name}}", "bank").Replace(rendered)
	rendered = strings.Replace(rendered, "/out/bank .\n", "/out/bank ./examples/bank\n", 1)
	rendered = strings.Replace(rendered, `, "-addr", ":8080"`, "", 1)
	if want := instructions(rendered); strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("deploy/Dockerfile has the instructions\n%s\nwant, as refold new writes them:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}

	user := false
	for _, line := range lines {
		user = user || regexp.MustCompile(`^USER [1-9]\d*:[1-9]\d*$`).MatchString(line)
	}
	if !user {
		t.Error("the Dockerfile has no USER with a number other than 0")
	}

	program := buildBank(t)
	if runtime.GOOS != "linux" {
		return // other systems link their C library
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program needs a dynamic linker, which the image does not have")
		}
	}
}
