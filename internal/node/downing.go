// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// decide carries out what the resolver wants done.
func (m *Machine) decide(e splitbrain.Effects) {
	for _, n := range e.Notes {
		m.count.Downing[n.Kind]++
		m.noteDecision(n)
	}
	if e.ReleaseLease {
		m.out.Leases = append(m.out.Leases, LeaseOp{Lease: m.cfg.Downing.LeaseName, Release: true})
	}
	if e.AskLease {
		m.out.Leases = append(m.out.Leases, LeaseOp{Lease: m.cfg.Downing.LeaseName})
	}
	for _, n := range e.Down {
		m.absorb(m.members.Step(m.now, membership.DownNode{Node: n}))
	}
}

func (m *Machine) noteDecision(n splitbrain.Note) {
	attrs := []membership.Attr{{Key: "strategy", Value: string(m.cfg.Downing.Strategy)}}
	if n.Decision != splitbrain.Decision(0) {
		attrs = append(attrs, membership.Attr{Key: "decision", Value: n.Decision.String()})
	}
	if len(n.Down) > 0 {
		attrs = append(attrs, membership.Attr{Key: "down", Value: n.Down})
	}
	attrs = append(attrs, membership.Attr{Key: "here", Value: n.Here}, membership.Attr{Key: "there", Value: n.There})
	messages := map[splitbrain.NoteKind]string{
		splitbrain.Decided:      "some members can't be reached, it was decided who survives",
		splitbrain.Unstable:     "who can be reached keeps changing, all members are downed",
		splitbrain.WithoutLease: "the lease was not to be had, the decision is reversed",
		splitbrain.Outgrown:     "there are more members than the static quorum allows: as soon as one is unreachable, all are downed",
		splitbrain.Orphaned:     "all members that let this node in have given up, and so does this one",
		splitbrain.LeftToOwner:  "the lease is held by a member of this side, which decides",
		splitbrain.Automatic:    "members that can't be reached are downed automatically, which splits the cluster when the network is cut",
	}
	m.log(membership.Warn, messages[n.Kind], attrs...)
}
