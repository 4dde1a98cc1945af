// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// delayWaysTo lets what others have to say to a node that is going to leave take long, but for who has the coordinator, and returns how long that is
// before it leaves: what is on its way then comes late.
func (d *sharding) delayWaysTo(s *site) time.Duration {
	boss, known := s.m.Boss()
	if !d.plan.Calm || !known || s.holds || d.rand.IntN(3) == 0 { // its own coordinator would have to wait for its store
		return 0
	}
	name, by := s.h.p.Node().Name, d.between(100*time.Millisecond, 700*time.Millisecond)
	var from []string
	for _, other := range d.living() {
		if n := other.h.p.Node(); n.Name != name && n != boss && d.rand.IntN(4) > 0 {
			from = append(from, n.Name)
			d.w.Network.Late(n.Name, name, by)
		}
	}
	d.w.Tell("what %v say to %s takes %v more", from, name, by)
	d.hit("sharding", "ways to who leaves are slow")
	d.w.After(maxLeaving, func() {
		for _, n := range from {
			d.w.Network.Late(n, name, 0)
		}
	})
	return d.between(0, time.Second)
}

// asks notes that something is said to a coordinator that is to be answered.
func (s *site) asks(k coordinator.Kind) {
	switch k {
	case coordinator.Register, coordinator.RegisterProxy, coordinator.GetHomes, coordinator.GracefulShutdown:
		if s.askedAt == shards.Never {
			s.askedAt = s.h.p.Now()
		}
	default:
	}
}

// gaveUp reports whether a command may be refused where all is planned: its node leaves, does not know where the shard is, and nobody has told it for
// giveUpAfter, nor could have, since no coordinator has been there for long enough to be asked.
func (s *site) gaveUp(r *shards.Refusal) bool {
	d := s.d
	_, known := s.m.Home(r.Shard)
	if r.Reason != shards.Stopped || !s.leaving || s.empty || known || s.askedAt == shards.Never || s.h.p.Now() < s.askedAt+giveUpAfter {
		return false
	}
	return d.activeAt == 0 || d.w.Now() < d.activeAt+retryInterval+enoughToAnswer
}

// enoughToAnswer is how long a question and its answer are under way at most, where all is planned.
const enoughToAnswer = 2 * time.Second

// answeredSoon: who waits for the answer to a command that was refused is told.
func (d *sharding) answeredSoon(nr uint64) {
	d.hit("sharding", "refused as no coordinator answers")
	d.w.After(enoughToAnswer, func() {
		if l := d.letter(nr); l.outcome == waits && !l.from.gone {
			l.from.violate("planned-moves-lose-nothing", "command %d for %s was refused, and is not answered", nr, l.account.id)
		}
	})
}
