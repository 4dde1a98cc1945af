// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/refold-io/refold/cmd/refold/operator"
)

// TestScripts runs the commands in testdata. Each script selects the journal, and the entity types
// of the program.
func TestScripts(t *testing.T) {
	t.Parallel()
	journals := map[string]func(testing.TB) *fixture{"bank": bank, "doubtful": doubtful}
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		t.Helper()
		t.Parallel()
		dir := "./bank-data" // a directory that does not exist
		target := filepath.Join(t.TempDir(), "target")
		var entities []operator.Linked
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			switch d.Cmd {
			case "journal":
				f := journals[d.CmdArgs[0].Key](t)
				f.close()
				dir = f.dir
				return ""
			case "link":
				entities = append(entities, operator.Entity(accountType()), operator.Entity(vaultType()))
				return ""
			case "run":
				args := strings.Fields(strings.NewReplacer("SOURCE", dir, "TARGET", target).Replace(d.Input))
				return strings.ReplaceAll(run(t, dir, args, entities), target, "TARGET")
			}
			d.Fatalf(t, "the script has the unknown command %q", d.Cmd)
			return ""
		})
	})
}

// malformed matches error texts of package codec, which may change.
var malformed = regexp.MustCompile(`(malformed data): [^")\n]*`)

// run runs one command and returns its output.
func run(t *testing.T, dir string, args []string, entities []operator.Linked) string {
	t.Helper()
	var out, errs bytes.Buffer
	p := operator.Program{Journal: "leveldb:" + dir, Entities: entities, Stdout: &out, Stderr: &errs}
	status := p.Run(t.Context(), args)
	var b strings.Builder
	b.WriteString(out.String())
	for line := range strings.Lines(errs.String()) {
		b.WriteString("! " + line)
	}
	if status != operator.ExitOK {
		fmt.Fprintf(&b, "exit %d\n", status)
	}
	text := b.String()
	if filepath.IsAbs(dir) {
		text = strings.ReplaceAll(text, dir, "DIR")
	}
	return malformed.ReplaceAllString(text, "$1: …")
}
