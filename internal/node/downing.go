// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

func (m *Machine) decide(e splitbrain.Effects) {
	for _, n := range e.Notes {
		m.count.Downing[n.Kind]++
		m.noteDecision(n)
	}
	m.operate(m.cfg.Downing.LeaseName, e.ReleaseLease, e.AskLease)
	for _, n := range e.Down {
		m.collectMembership(m.members.Step(m.now, membership.DownNode{Node: n}))
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
		splitbrain.Decided:      "downing: decision about unreachable members",
		splitbrain.Unstable:     "downing: reachability does not become stable, downing all members",
		splitbrain.WithoutLease: "downing: lease not acquired, reversing the decision",
		splitbrain.Outgrown:     "downing: more members than the static quorum allows, the next unreachable member downs all",
		splitbrain.Orphaned:     "downing: all members that accepted this node are down, downing this node",
		splitbrain.LeftToOwner:  "downing: waiting for the decision of the lease owner on this side",
		splitbrain.Automatic:    "downing: automatic downing is enabled, a network partition splits the cluster",
	}
	m.log(membership.Warn, messages[n.Kind], attrs...)
}

// operate starts operations on a lease.
func (m *Machine) operate(lease string, release, ask bool) {
	if release {
		m.out.Leases = append(m.out.Leases, LeaseOp{Lease: lease, Release: true})
	}
	if ask {
		m.out.Leases = append(m.out.Leases, LeaseOp{Lease: lease})
	}
}

// leasePrefix begins the names of the leases of singletons. The name of the singleton follows.
func (m *Machine) leasePrefix() string { return m.cfg.Cluster + "-singleton-" }

func (m *Machine) leaseAnswered(in LeaseAnswer) {
	if in.Held {
		m.count.LeasesHeld++
	} else {
		m.count.LeasesNotHeld++
	}
	owner, _ := identity.Parse(in.Owner) // the zero node if it cannot be parsed
	m.leaseStep(in.Lease, splitbrain.LeaseAnswer{Held: in.Held, Owner: owner}, singleton.LeaseAnswer{Held: in.Held})
}

func (m *Machine) leaseStep(lease string, resolver splitbrain.Input, manager singleton.Input) {
	if m.cfg.Downing.Strategy == downing.LeaseMajority && lease == m.cfg.Downing.LeaseName {
		m.decide(m.resolver.Step(m.now, resolver))
		return
	}
	var h *hosted
	if name, ok := strings.CutPrefix(lease, m.leasePrefix()); ok {
		h = m.find(name)
	}
	m.hostedStep(h, manager)
}
