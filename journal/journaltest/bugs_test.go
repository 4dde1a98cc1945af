// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/recorder"
	"github.com/refold-io/refold/journal/journaltest"
)

// planted is a bug with the checks that must find it.
type planted struct {
	name  string
	finds []string
	hangs bool // because of the bug a call does not return
	alone bool // the bug would disturb other tests
	plant func() bug
}

func bugs() []planted {
	return slices.Concat(replayBugs(), appendBugs(), fieldBugs(), writerBugs(), callBugs(), deleteBugs(), listBugs(), lifeBugs(), queryBugs(), pageBugs(), queryStateBugs(), waitBugs())
}

// TestBugs checks that each planted bug is found by the checks that must find it.
func TestBugs(t *testing.T) {
	t.Parallel()
	for _, b := range bugs() {
		if b.alone {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			find(t, b)
		})
	}
}

// TestBugsAlone does the same as TestBugs for bugs that would disturb other tests. It runs while no
// other test runs: one bug leaks 1,000 goroutines for a while, and another test counts goroutines.
func TestBugsAlone(t *testing.T) {
	for _, b := range bugs() {
		if b.alone {
			t.Run(b.name, func(t *testing.T) { find(t, b) })
		}
	}
}

func find(t *testing.T, b planted) {
	t.Helper()
	cfg := config(b.plant)
	if b.hangs {
		cfg.Timeout = 300 * time.Millisecond
	}
	for _, name := range b.finds {
		failures := recorder.Find(t, func(tb testing.TB) { journaltest.RunOne(tb, cfg, name) })
		if len(failures) == 0 {
			t.Errorf("the check %s passes, want a failure because of the planted bug", name)
			continue
		}
		t.Logf("%s: %s", name, failures[0])
	}
}

// TestEveryCheckFindsABug checks that each check must find at least one planted bug.
func TestEveryCheckFindsABug(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, b := range bugs() {
		for _, name := range b.finds {
			found[name] = true
		}
	}
	for _, name := range journaltest.Names() {
		if !found[name] {
			t.Errorf("0 bugs are planted for the check %s, want at least 1", name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("a bug is planted for the check %s, which does not exist", name)
	}
}
