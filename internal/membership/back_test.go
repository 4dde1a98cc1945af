// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
)

// TestBackAtOnce: a node that is started again is a member as soon as whoever had its name is gone, or those who let
// it in can do so. It does not wait until joining begins anew.
func TestBackAtOnce(t *testing.T) {
	t.Parallel()
	anew := 10 * time.Second // membership.Settings.RetryJoinAfter
	for name, story := range map[string]struct {
		stays int // of three
		gone  func(w *world, hosts []*host)
		most  time.Duration
	}{
		// 3 s until the old one is taken for dead, 1 s until that is looked at, 1 s each for the leader to remove it, for the
		// next wish, for the first gossip, and for the leader to make it Up; gossip in between.
		"crashed": {2, func(_ *world, hosts []*host) { hosts[2].kill() }, anew - time.Second},
		"left": {2, func(w *world, hosts []*host) {
			hosts[2].do(membership.Leave{Node: hosts[2].node})
			if !w.until(time.Minute, func() bool { return hosts[2].stopped(membership.Left) }) {
				t.Fatal("it does not leave")
			}
		}, anew - time.Second},
		"new, and the others are suspended": {3, func(w *world, _ []*host) {
			w.broker = true
			w.run(30 * time.Second)
			w.broker = false
		}, anew - time.Second},
	} {
		for seed := range uint64(20) {
			w := newWorld(t, seed)
			hosts := w.join(names(3)...)
			w.up(time.Minute, hosts...)
			story.gone(w, hosts)
			again := w.start(names(4)[story.stays])
			from := w.now
			again.do(membership.JoinSeeds{Seeds: names(2)})
			members := append(hosts[:story.stays:story.stays], again)
			if !w.until(time.Minute, func() bool { return w.agree(members...) }) || w.now-from > story.most {
				t.Errorf("%s, seed %d: it is there after %v, want %v at most:\n%s", name, seed, w.now-from, story.most, w.describe())
			}
		}
	}
}
