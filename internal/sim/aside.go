// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/internal/sim/env"
)

// aside is what happens beside the membership of a cluster. Chance comes from a source of its own, so that the nodes' story is the same
// with it and without.
type aside struct {
	c     *cluster
	w     *env.World
	rand  *rand.Rand
	quiet bool // nothing happens by itself any more
}

func newAside(c *cluster, seed, salt uint64) aside {
	return aside{c: c, w: c.w, rand: rand.New(rand.NewPCG(seed, salt))} //nolint:gosec // it has to be repeatable
}

// later calls f after about some time, again and again, until nothing happens by itself any more.
func (a *aside) later(about time.Duration, f func()) {
	a.w.After(a.between(about/4, about*7/4), func() {
		if !a.quiet && a.c.violation == nil {
			f()
			a.later(about, f)
		}
	})
}

func (a *aside) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.rand.Int64N(int64(most-least)))
}

func (a *aside) hit(table, row string) { a.c.hit(table, row) }
