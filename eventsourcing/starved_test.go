// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/store"
)

// starved is an immediate journal in a process that is paused during each append.
type starved struct{ slowAppends }

func (j *starved) Immediate() journal.Journal { return j }

// TestStarvedProcess checks that pauses of the process neither fail an append to an immediate journal
// nor open a circuit breaker. The breaker of another journal opens after the first late call.
func TestStarvedProcess(t *testing.T) {
	t.Parallel()
	for name, immediate := range map[string]bool{"immediate": true, "other": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				slow := slowAppends{s.journal, time.Minute}
				s.cfg.Store = store.Of(&slow, s.snapshots)
				if immediate {
					s.cfg.Store = store.Of(&starved{slow}, s.snapshots)
				}
				s.cfg.JournalBreaker.MaxFailures = 1
				opened := false
				s.cfg.JournalBreaker.OnChange = func(open bool) { opened = opened || open }
				s.open()
				defer s.close()
				for range 3 {
					if _, err := s.ask(addLines("x")); err != nil && immediate {
						t.Errorf("ask: %v", err)
					}
				}
				if opened == immediate {
					t.Errorf("the circuit breaker has opened: %t, want %t", opened, !immediate)
				}
				if open := s.rt.OpenBreakers(); (open > 0) == immediate {
					t.Errorf("%d breakers are open", open)
				}
			})
		})
	}
}
