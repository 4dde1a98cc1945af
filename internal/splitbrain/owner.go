// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"time"

	"github.com/refold-io/refold/identity"
)

// A lease is held for a while after a decision. If there is something else to decide meanwhile, the node that leads now
// may be another one than the owner, and does not get the lease although it is on this side. So the owner decides
// whether it leads or not, and the leader that learns of it waits for that, for a bounded time. It asks again and again
// meanwhile, in case that the owner gives the lease up. What the leader does without the lease is to end its side, so
// nothing that goes wrong here lets two sides survive.

// patience is for how long a leader leaves a decision to the owner of the lease. When all came to rest is not the same
// for both, but differs by less than StableAfter; and an owner on the other side must still have the lease when
// this one gives in.
func (s *Settings) patience() time.Duration { return min(s.StableAfter/2, s.ReleaseAfter/4) }

// leaveTo reports whether the decision is left to the owner of the lease: it is on this side, and has not been waited
// for too long. Where an answer does not tell the owner, it is taken for the same as before.
func (r *Resolver) leaveTo(now time.Duration, owner identity.Node, out *Effects) bool {
	l := &r.lease
	first := l.owner.IsZero()
	if owner.IsZero() {
		owner = l.owner
	}
	if !r.isHere(owner) || !first && now >= l.until {
		return false
	}
	if first {
		l.until = now + r.settings.patience()
	}
	l.owner = owner
	l.phase, l.askAt = delaying, now // with the next tick
	if r.lookUp(now, out) || !first {
		return true
	}
	sit := newSituation(r.self, &r.view)
	c := sit.count(ordinary(r.settings.Role))
	out.Notes = append(out.Notes, Note{Kind: LeftToOwner, Here: c.here, There: c.there})
	return true
}

// isHere reports whether a node is another member that has a say, on this side as it was seen last.
func (r *Resolver) isHere(n identity.Node) bool {
	v := &r.lease.latest
	if n == r.self || !hasSay(v.status(n)) {
		return false
	}
	sit := newSituation(r.self, v)
	return !sit.far(n)
}

// lookUp ends the wait for the owner, and reports that, if something has changed: it has decided, or there is
// something else to decide about.
func (r *Resolver) lookUp(now time.Duration, out *Effects) bool {
	l := &r.lease
	if l.phase != delaying || l.owner.IsZero() || !l.queued.restart {
		return false
	}
	r.resume(now, out)
	return true
}
