// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding"
)

// wantGroups runs "refold groups" until its output matches.
func (l *lab) wantGroups(status int, args []string, patterns ...string) {
	l.t.Helper()
	for began := time.Now(); ; {
		got, out, stderr := l.command(l.t.Context(), "groups", args...)
		missing := ""
		for _, p := range patterns {
			if !regexp.MustCompile(p).MatchString(out + stderr) {
				missing = p
			}
		}
		switch {
		case got == status && missing == "":
			return
		case time.Since(began) > 3*time.Minute:
			l.t.Fatalf("%q: exit status %d, want %d; %q is missing in\n%s%s", args, got, status, missing, out, stderr)
		}
	}
}

func TestGroupsCommand(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b := l.join("a"), l.join("b")
	l.settled()
	l.wantGroups(2, nil, `no node of cluster "lab" has groups or workers; queried: a, b`)
	run := func(ctx context.Context, i *sharding.Instance) error {
		i.Ready()
		<-ctx.Done()
		return nil
	}
	_, err := sharding.StartGroup(t.Context(), a, sharding.Group{Name: "prices", Instances: 2, Run: run})
	if err != nil {
		t.Fatal(err)
	}
	l.wantGroups(1, nil, `prices: 0 instances; coordinator on a#\w+, revision 0, waits for .*b#`)
	if _, err = sharding.StartGroup(t.Context(), b, sharding.Group{Name: "prices", Instances: 2, Run: run}); err != nil {
		t.Fatal(err)
	}
	l.wantGroups(0, nil, `prices: 2 instances; coordinator on a#\w+, revision \d+\n`, `NR  NODE +NEXT +ENDS ON\n`, `0   a#\w+ +- +-\n`, `1   b#\w+ +- +-\n`)
	l.wantGroups(0, []string{"--json"}, `"name":"prices",.*"places":\[\{"node":"a#\w+"`)
}
