// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/testkit/pgserver"
)

// installed creates a directory with binaries that report a version.
func installed(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		script := "#!/bin/sh\necho '" + name + " (PostgreSQL) " + version + "'\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindPrefersPathThenNewest(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, version := range []string{"9.6.24", "13.4", "16.14 (Debian 16.14-0+deb12u1)", "9.6", "17beta1"} {
		installed(t, filepath.Join(root, strings.Fields(version)[0], "bin"), version)
	}
	patterns := []string{filepath.Join(root, "none-*"), filepath.Join(root, "*", "bin")}
	path := installed(t, filepath.Join(t.TempDir(), "path"), "14.1")
	old := installed(t, filepath.Join(t.TempDir(), "old"), "12.9")
	for _, c := range []struct {
		first, want string
	}{
		{path, path},
		{"", filepath.Join(root, "17beta1", "bin")},
		{old, filepath.Join(root, "17beta1", "bin")},
		{t.TempDir(), filepath.Join(root, "17beta1", "bin")},
	} {
		if got, err := pgserver.Find(t.Context(), c.first, patterns); got != c.want || err != nil {
			t.Errorf("path %q: got %q, %v, want %q", c.first, got, err, c.want)
		}
	}
}

func TestFindErrorContainsPackage(t *testing.T) {
	t.Parallel()
	old := installed(t, filepath.Join(t.TempDir(), "old"), "12.9")
	for _, first := range []string{"", old, t.TempDir()} {
		_, err := pgserver.Find(t.Context(), first, []string{filepath.Join(t.TempDir(), "*")})
		if !errors.Is(err, pgserver.ErrNoBinaries) || !strings.Contains(err.Error(), "apt-get install postgresql") {
			t.Errorf("path %q: %v, want ErrNoBinaries with the name of the package", first, err)
		}
		if first == old && !strings.Contains(err.Error(), "version 12") {
			t.Errorf("error %v does not contain the unsupported version 12", err)
		}
	}
}

func TestFindUsesVariable(t *testing.T) {
	dir := installed(t, filepath.Join(t.TempDir(), "mine"), "15.2")
	t.Setenv(pgserver.BinEnv, dir)
	if got, err := pgserver.FindBinaries(t.Context()); got != dir || err != nil {
		t.Errorf("FindBinaries returned %q, %v, want %q", got, err, dir)
	}
	t.Setenv(pgserver.BinEnv, t.TempDir())
	if _, err := pgserver.FindBinaries(t.Context()); !errors.Is(err, pgserver.ErrNoBinaries) || !strings.Contains(err.Error(), pgserver.BinEnv) {
		t.Errorf("a directory without binaries: %v, want ErrNoBinaries with the variable", err)
	}
}

// The search of the Makefile finds the same binaries as the tests.
func TestMakefileSearchesSameDirectories(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "..", "..", ".ci", "need"))
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range append(pgserver.Places(), pgserver.BinEnv, fmt.Sprintf("-ge %d ]", pgserver.MinVersion)) {
		if !strings.Contains(string(script), place) {
			t.Errorf(".ci/need does not contain %s", place)
		}
	}
}

// Without Chromium, and without the permission to install it, the Makefile names the package.
func TestMakefileNamesPackageOfChromium(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "..", "..", ".ci", "need"))
	if err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	dirname, err := exec.LookPath("dirname")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	programs, need := filepath.Join(root, "bin"), filepath.Join(root, ".ci", "need")
	create := func(path, text string) {
		t.Helper()
		if failed := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); failed != nil {
			t.Fatal(failed)
		}
	}
	create(need, strings.ReplaceAll(string(script), "/Applications/", root+"/")) // where macOS has Chromium
	create(filepath.Join(programs, "id"), "#!"+bash+"\necho 1000\n")
	create(filepath.Join(programs, "apt-get"), "#!"+bash+"\necho apt-get must not run >&2\n")
	if err = os.Symlink(dirname, filepath.Join(programs, "dirname")); err != nil {
		t.Fatal(err)
	}
	run := func(env ...string) (text string, failed error) {
		cmd := exec.CommandContext(t.Context(), bash, need, "chromium")
		cmd.Env = append(env, "PATH="+programs)
		out, failed := cmd.CombinedOutput()
		return string(out), failed
	}
	missing := filepath.Join(root, "missing")
	for _, c := range []struct{ env, want string }{
		{"INSTALL=no", "apt-get install chromium"},
		{"INSTALL=yes", "apt-get install chromium"}, // by a user who is not root
		{"REFOLD_CHROMIUM=" + missing, "REFOLD_CHROMIUM is " + missing},
	} {
		if text, failed := run(c.env); failed == nil || !strings.Contains(text, c.want) || strings.Contains(text, "must not run") {
			t.Errorf("need chromium with %s: %v, %q; want a failure with %q", c.env, failed, text, c.want)
		}
	}
	create(filepath.Join(programs, "chromium"), "#!"+bash+"\n")
	if text, failed := run("INSTALL=no"); failed != nil || text != "" {
		t.Errorf("need chromium with Chromium: %v, %q; want success", failed, text)
	}
}
