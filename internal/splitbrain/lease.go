// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// leasePhase is the state of a decision that needs the lease.
type leasePhase uint8

const (
	idle     leasePhase = iota
	delaying            // others may act first: the other side, or the owner
	asking
	abandoned // requested, but the answer will be ignored
)

type leaseState struct {
	phase    leasePhase
	decision Decision
	askAt    time.Duration
	owner    identity.Node // a member of this side that holds the lease, zero if there is none
	until    time.Duration // until when this node waits for the owner

	// Changes since the decision.
	latest View
	queued change

	held      bool
	lost      bool            // it was held and has to be acquired again
	regaining bool            // the new acquisition was requested and is not answered yet
	waiting   []identity.Node // downed nodes whose removal precedes the release of the lease, sorted
	releasing bool            // all nodes in waiting were removed
	releaseAt time.Duration
}

func (l *leaseState) queue(c change, v View) {
	l.latest = v
	l.queued.restart = l.queued.restart || c.restart
	l.queued.removed = l.queued.removed || c.removed
	l.queued.reach += c.reach
}

// ask starts to acquire the lease for a decision. A node that holds the lease requests it again
// without a delay, because the lease may have been lost. A decision that downs no nodes, because
// all of them are Down already, needs no lease. A request would end this side if another node held
// the lease.
func (r *Resolver) ask(now time.Duration, decision Decision, p *partition, out *Effects) {
	if nodes, _ := r.settings.nodesToDown(p, decision); len(nodes) == 0 {
		return
	}
	l := &r.lease
	l.decision, l.latest, l.queued, l.owner = decision, r.view, change{}, identity.Node{}
	if decision != KeepConnected && !l.held && r.settings.isMinority(p) {
		l.phase, l.askAt = delaying, now+r.settings.MinorityDelay
		return
	}
	l.phase = asking
	out.AskLease, out.ReleaseLease = true, false
}

func (r *Resolver) leaseAnswered(now time.Duration, in LeaseAnswer, out *Effects) {
	l, held := &r.lease, in.Held
	if l.regaining { // the request for the lost lease was sent before the request for the decision
		l.regaining, l.lost = false, l.lost && !held
		return
	}
	switch l.phase {
	case idle, delaying:
		return // no request is pending
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
			break // the leader decides, with or without the lease
		}
		if r.leaveToOwner(now, in.Owner, out) {
			return
		}
		r.act(now, WithoutLease, l.decision.reverse(), out)
	}
	r.resume(now, out)
}

func (r *Resolver) resume(now time.Duration, out *Effects) {
	l := &r.lease
	l.phase = idle
	queued, latest := l.queued, l.latest
	l.queued, l.latest = change{}, View{}
	r.apply(now, queued, latest, out)
}

func (r *Resolver) abandon(now time.Duration, out *Effects) {
	switch r.lease.phase {
	case delaying:
		r.resume(now, out)
	case asking:
		r.lease.phase = abandoned
	case idle, abandoned:
	}
}

func (r *Resolver) tickRegain(out *Effects) {
	l := &r.lease
	if l.lost && !l.regaining && l.phase == idle && !out.ReleaseLease {
		l.regaining = true
		out.AskLease = true
	}
}

func (l *leaseState) release(now time.Duration, s *Settings) {
	l.releasing = l.held && len(l.waiting) == 0
	l.releaseAt = now + s.ReleaseAfter
}

func (l *leaseState) removed(now time.Duration, s *Settings, v *View) {
	if len(l.waiting) == 0 {
		return
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(n identity.Node) bool { return v.status(n) == identity.Removed })
	if len(l.waiting) == 0 {
		l.release(now, s)
	}
}

// The lease is held for a while after a decision. If another decision is needed in that time, the
// present leader may be a different node than the owner, and cannot acquire the lease although it
// is on the same side. Therefore the owner decides whether or not it leads. A leader that receives
// the name of the owner waits for the decision of the owner for a limited time. In that time the
// leader keeps requesting the lease in case the owner releases it. Without the lease the leader
// ends its own side, so no failure of this scheme lets two sides survive.

// leaveToOwner reports whether the decision is left to the owner of the lease: the owner is on this
// side, and the wait has not timed out. If the answer contains no owner, the previous owner is
// assumed.
func (r *Resolver) leaveToOwner(now time.Duration, owner identity.Node, out *Effects) bool {
	l := &r.lease
	first := l.owner.IsZero()
	if owner.IsZero() {
		owner = l.owner
	}
	if !r.isHere(owner) || !first && now >= l.until {
		return false
	}
	if first {
		// The views of leader and owner become stable at different times, but less than StableAfter
		// apart. An owner on the other side must still hold the lease when this leader gives up.
		l.until = now + min(r.settings.StableAfter/2, r.settings.ReleaseAfter/4)
	}
	l.owner = owner
	l.phase, l.askAt = delaying, now // with the next tick
	if r.endOwnerWait(now, out) || !first {
		return true
	}
	p := newPartition(r.self, &r.view)
	c := p.count(countedBy(r.settings.Role))
	out.Notes = append(out.Notes, Note{Kind: LeftToOwner, Here: c.here, There: c.there})
	return true
}

// isHere reports whether a node is another member that may decide, on this side of the latest view.
func (r *Resolver) isHere(n identity.Node) bool {
	v := &r.lease.latest
	if n == r.self || !mayDecide(v.status(n)) {
		return false
	}
	p := newPartition(r.self, v)
	return !p.isOtherSide(n)
}

// endOwnerWait ends the wait for the owner if the view has changed: the owner has decided, or
// another decision is needed. It reports whether it has ended the wait.
func (r *Resolver) endOwnerWait(now time.Duration, out *Effects) bool {
	l := &r.lease
	if l.phase != delaying || l.owner.IsZero() || !l.queued.restart {
		return false
	}
	r.resume(now, out)
	return true
}
