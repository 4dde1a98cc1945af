// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// "make bank" builds the program with the tag embedded. The test checks that this program contains
// no database driver, no NATS and no HTTP, and that it executes the commands that "make bank"
// prints. For other commands, the program prints how to run the full program.
func TestEmbeddedProgram(t *testing.T) {
	t.Parallel()
	output := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		return string(out), err
	}
	deps, err := output("go", "list", "-tags", "embedded", "-deps", ".")
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, deps)
	}
	deps = strings.ReplaceAll(deps, "refold/sharding/allocation", "") // values in the records that "bank refold verify" decodes
	for _, path := range []string{"net/http", "crypto/tls", "jackc/pgx", "nats-io", "opentelemetry", "refold/cluster", "refold/sharding"} {
		if strings.Contains(deps, path) {
			t.Errorf("the embedded program imports %s", path)
		}
	}
	dir := t.TempDir()
	bank, name := filepath.Join(dir, "bank"), "leveldb:"+filepath.Join(dir, "data")
	if out, err := output("go", slices.Concat([]string{"build"}, raceFlag(), []string{"-tags", "embedded", "-o", bank, "."})...); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	file := written(t, "1,open,alice,,USD,Alice\n2,deposit,alice,5,USD,\n3,open,bob,,TWD,\n4,transfer,alice,1,USD,bob\n")
	for _, c := range []struct{ args, want string }{
		{"apply " + file, "done"},
		{"audit", "OK"},
		{"statement alice", "deposited"},
		{"lookup alice --at-seq 2", "5.00 USD"},
		{"refold events account|alice", "transfer_started"},
		{"refold rebuild account|alice", "equal"},
		{"refold verify", "0 problems"},
	} {
		out, err := output(bank, append(strings.Fields(c.args), "--journal", name)...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("bank %s: error %v, printed\n%s\nwant %q", c.args, err, out, c.want)
		}
	}
	for _, args := range []string{
		"serve", "serve --nodes 3", "probe", "project", "audit --journal postgres:", "refold migrate --check", "refold copy " + name + " postgres://h/d",
	} {
		out, err := output(bank, strings.Fields(args)...)
		if err == nil || !strings.Contains(out, "use: go run ./examples/bank") {
			t.Errorf("bank %s: error %v, printed\n%s\nwant an error that names the full program", args, err, out)
		}
	}
}
