// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The bank contains the Go types for the commands of the operator.
func TestOperatorCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := "leveldb:" + filepath.Join(dir, "data")
	file := written(t, "1,open,alice,,USD,Alice\n2,deposit,alice,5,USD,\n3,open,bob,,TWD,\n4,transfer,alice,1,USD,bob\n")
	must(t, exitOK, "apply", file, "--journal", name)
	for args, want := range map[string]string{
		"refold rebuild account|alice --journal " + name:   "equal",
		"--journal " + name + " refold events":             "account|alice",
		"--journal " + name + " refold verify account|bob": "0 problems",
	} {
		if r := must(t, exitOK, strings.Fields(args)...); !strings.Contains(r.out, want) || r.errout != "" {
			t.Errorf("bank %s: %+v, want %q and no errors", args, r, want)
		}
	}
	other := "leveldb:" + filepath.Join(dir, "other")
	if r := must(t, exitOK, "refold", "copy", name, other); !strings.Contains(r.out, "on both sides: equal") {
		t.Errorf("refold copy: %+v, want equal sides", r)
	}
	must(t, exitOK, "audit", "--journal", other)
	if r := must(t, exitUsage, "refold", "rebuild", "ledger|main", "--journal", name); !strings.Contains(r.errout, `the type "ledger" is not part of this program`) {
		t.Errorf("refold rebuild of an unknown type: %+v, want an error about the type \"ledger\"", r)
	}
}
