// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/splitbrain"
)

// TestOrphans: who joins a side of the cluster that gives itself up, and is not known there yet, gives
// up with it.
func TestOrphans(t *testing.T) {
	t.Parallel()
	for view, want := range map[string]string{
		"a:joining b:down c:down! d:down!":           "a",
		"a:weakly-up b:down c:down":                  "a",
		"a:joining b:down c:joining":                 "a",
		"a:joining b:down c:up!":                     "", // it is decided about that one first
		"a:joining b:down c:exiting":                 "",
		"a:joining b:down@2147483647":                "", // nobody was up ever
		"a:joining b:joining":                        "",
		"a:up b:down c:down":                         "",
		"a:leaving b:down":                           "",
		"a:joining b:up c:down":                      "",
		"a:joining b:down c:preparing-for-shutdown!": "",
	} {
		t.Run(view, func(t *testing.T) {
			t.Parallel()
			r, err := splitbrain.New(node("a"), splitbrain.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			if got := names(r.Step(time.Second, parse(t, view)).Down); got != want {
				t.Errorf("it downs %q, want %q", got, want)
			}
		})
	}
}
