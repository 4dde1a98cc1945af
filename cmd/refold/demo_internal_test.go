// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/pgtest"
)

// TestMain is also the main function of the processes that the demonstration and other tests start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"demo", "new", "completion"}, os.Args[1]) {
		os.Exit(program().Main())
	}
	// A goroutine of goleveldb ends 30 s after the database is closed.
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}

// The demonstration prints these steps: all nodes are up; one node is killed, becomes unreachable,
// is downed and removed; the killed node joins again as another incarnation.
func TestDemoCluster(t *testing.T) {
	t.Parallel()
	var out, stderr bytes.Buffer
	p := program()
	p.Stdout, p.Stderr = &out, &stderr
	if status := p.Run(t.Context(), []string{"demo", "cluster", "--nodes", "3", "--stable-after", "5s", "--patience", "5m"}); status != 0 {
		t.Fatalf("demo: exit status %d, want 0\n%s%s", status, &out, &stderr)
	}
	rest := out.String()
	for _, step := range []string{
		`node-c starts as process \d+`,
		`node-a up, leads \| node-b up \| node-c up\n`,
		`node-c#[0-9a-f]+ is killed`,
		`node-c (up|down), unreachable\n`, // on a busy machine node-c may be down before the first node receives its unreachability
		`node-a up, leads \| node-b up\n`,
		`node-c starts as process \d+`,
		`node-a up, leads \| node-b up \| node-c up\n`,
		`another incarnation, node-c#[0-9a-f]+\n`,
	} {
		at := regexp.MustCompile(step).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("step %q was not printed after the previous steps:\n%s%s", step, &out, &stderr)
		}
		rest = rest[at[1]:]
	}
	ids := regexp.MustCompile(`node-c#[0-9a-f]+`).FindAllString(out.String(), -1)
	if ids[0] == ids[len(ids)-1] {
		t.Errorf("node-c joined again as %s, want another UID", ids[0])
	}
}

func TestDemoClusterArguments(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--nodes 1", "--nodes 27", "--strategy lease-majority", "--strategy nonsense", "--stable-after 10ms"} {
		var stderr bytes.Buffer
		p := program()
		p.Stderr = &stderr
		flag, _, _ := strings.Cut(args, " ")
		if status := p.Run(t.Context(), append([]string{"demo", "cluster"}, strings.Fields(args)...)); status != 2 || !strings.Contains(stderr.String(), flag) {
			t.Errorf("%s: exit status %d, %q; want 2 and %q", args, status, &stderr, flag)
		}
	}
}
