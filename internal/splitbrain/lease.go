// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// leasePhase is where a decision stands that needs the lease.
type leasePhase uint8

const (
	idle     leasePhase = iota
	delaying            // others may act first: the other side, or the owner
	asking
	abandoned // asked, and whatever the answer is, nothing follows from it
)

// leaseState is what a resolver knows about the lease.
type leaseState struct {
	phase    leasePhase
	decision Decision
	askAt    time.Duration
	owner    identity.Node // a member of this side that has the lease, zero if there is none
	until    time.Duration // when that one has been waited for long enough

	// What has been seen since the decision.
	latest View
	queued change

	held      bool
	lost      bool            // it is held by right, and has to be asked for again
	regaining bool            // that was done, and has no answer yet
	waiting   []identity.Node // to be removed before the lease is released, sorted
	releasing bool            // nobody is waited for
	releaseAt time.Duration
}

func (l *leaseState) queue(c change, v View) {
	l.latest = v
	l.queued.restart = l.queued.restart || c.restart
	l.queued.removed = l.queued.removed || c.removed
	l.queued.reach += c.reach
}

// ask begins to get the lease for a decision. Who holds it already asks again, in
// case that it was lost, but need not wait. A decision that downs nobody, because they all
// are down already, needs none: it would end this side if another had it.
func (r *Resolver) ask(now time.Duration, decision Decision, sit *situation, out *Effects) {
	if nodes, _ := r.settings.carry(sit, decision); len(nodes) == 0 {
		return
	}
	l := &r.lease
	l.decision, l.latest, l.queued, l.owner = decision, r.view, change{}, identity.Node{}
	if decision != KeepConnected && !l.held && r.settings.isMinority(sit) {
		l.phase, l.askAt = delaying, now+r.settings.MinorityDelay
		return
	}
	l.phase = asking
	out.AskLease, out.ReleaseLease = true, false
}

func (r *Resolver) tickAsking(now time.Duration, out *Effects) {
	if r.lease.phase == delaying && now >= r.lease.askAt {
		r.lease.phase = asking
		out.AskLease = true
	}
}

func (r *Resolver) leaseAnswered(now time.Duration, in LeaseAnswer, out *Effects) {
	l, held := &r.lease, in.Held
	if l.regaining { // which was asked first
		l.regaining, l.lost = false, l.lost && !held
		return
	}
	switch l.phase {
	case idle, delaying:
		return // answers nothing
	case abandoned:
		l.held, l.lost = held, false
		l.release(now, &r.settings)
	case asking:
		l.held, l.lost = held, false
		if held {
			l.waiting = append(slices.Clone(l.waiting), r.act(now, Decided, l.decision, out)...)
			slices.SortFunc(l.waiting, identity.Node.Compare)
			l.waiting = slices.Compact(l.waiting)
			l.release(now, &r.settings)
			break
		}
		l.waiting, l.releasing = nil, false
		if !r.view.Leader {
			break // the leader decides, with the lease or without it
		}
		if r.leaveTo(now, in.Owner, out) {
			return
		}
		r.act(now, WithoutLease, l.decision.reverse(), out)
	}
	r.resume(now, out)
}

// resume takes in what has been seen since the lease was asked for.
func (r *Resolver) resume(now time.Duration, out *Effects) {
	l := &r.lease
	l.phase = idle
	queued, latest := l.queued, l.latest
	l.queued, l.latest = change{}, View{}
	r.apply(now, queued, latest, out)
}

// abandon drops a decision that waits for the lease.
func (r *Resolver) abandon(now time.Duration, out *Effects) {
	switch r.lease.phase {
	case delaying:
		r.resume(now, out)
	case asking:
		r.lease.phase = abandoned
	case idle, abandoned:
	}
}

// leaseLost notes that the lease has to be asked for again.
func (r *Resolver) leaseLost() { r.lease.lost = r.lease.held }

// tickRegain asks again for a lease that was lost.
func (r *Resolver) tickRegain(out *Effects) {
	l := &r.lease
	if l.lost && !l.regaining && l.phase == idle && !out.ReleaseLease {
		l.regaining = true
		out.AskLease = true
	}
}

// release starts the time after which the lease is released, once nobody is waited
// for.
func (l *leaseState) release(now time.Duration, s *Settings) {
	l.releasing = l.held && len(l.waiting) == 0
	l.releaseAt = now + s.ReleaseAfter
}

// removed notes that members are gone.
func (l *leaseState) removed(now time.Duration, s *Settings, v *View) {
	if len(l.waiting) == 0 {
		return
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(n identity.Node) bool { return v.status(n) == identity.Removed })
	if len(l.waiting) == 0 {
		l.release(now, s)
	}
}

func (r *Resolver) tickRelease(now time.Duration, out *Effects) {
	if r.lease.releasing && now >= r.lease.releaseAt {
		out.ReleaseLease = true
	}
}

// leaseReleased notes that the lease is no longer held. An answer that comes while it is
// asked for again is about an earlier time.
func (r *Resolver) leaseReleased(done bool) {
	if l := &r.lease; done && l.phase == idle && l.releasing {
		l.held, l.releasing, l.lost = false, false, false
	}
}

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
