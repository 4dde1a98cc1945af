// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

// Counters are what a machine has counted since it was made.
type Counters struct {
	Membership membership.Counters
	// Downing counts the notes of the resolver.
	Downing [splitbrain.LeftToOwner + 1]uint64
	// Became counts the states that managers took.
	Became                           [singleton.End + 1]uint64
	SingletonSent, SingletonReceived [singleton.InstanceGone + 1]uint64
	// Ignored counts messages that a manager did not heed, Stuck how often one started over.
	Ignored, Stuck uint64
	// Malformed counts messages that can't be decoded, Refused what is for no machine here or from
	// a node that is gone.
	Malformed, Refused uint64
	// LeasesHeld, LeasesNotHeld and LeasesLost count what was said about leases.
	LeasesHeld, LeasesNotHeld, LeasesLost uint64
	// ExitTimeouts counts nodes that did not wait for a singleton any more.
	ExitTimeouts uint64
}

// Counters returns what was counted.
func (m *Machine) Counters() Counters {
	c := m.count
	c.Membership = m.members.Counters()
	return c
}

// Self returns the node.
func (m *Machine) Self() identity.Node { return m.self }

// Config returns the configuration with its defaults.
func (m *Machine) Config() Config { return m.cfg }

// View returns what the node knows of the cluster.
func (m *Machine) View() membership.View { return m.members.View() }

// Snapshot returns what a subscriber to events has to know before the next one.
func (m *Machine) Snapshot() membership.Snapshot { return m.members.Snapshot() }

// Gossip returns the state that the membership shares.
func (m *Machine) Gossip() membership.Gossip { return m.members.Gossip() }

// Member reports whether the node is a member.
func (m *Machine) Member() bool { return m.members.Member() }

// Stopped reports whether the node is no member any more and never will be.
func (m *Machine) Stopped() bool { return m.stopped }

// Suspended reports whether the node must not host anything now.
func (m *Machine) Suspended() bool { return m.members.Suspended() }

// Phi returns how much each monitored member is suspected.
func (m *Machine) Phi() map[identity.Node]float64 { return m.members.Phi() }

// Singleton is where the manager of a singleton stands.
type Singleton struct {
	Name  string
	State singleton.State
	// Instance is the one that runs, or is being stopped. 0 is none.
	Instance uint64
}

// Singletons returns where the managers stand, sorted by name.
func (m *Machine) Singletons() []Singleton {
	all := make([]Singleton, len(m.singletons))
	for i, h := range m.singletons {
		all[i] = Singleton{h.name, h.manager.State(), h.manager.Instance()}
	}
	return all
}

// Oldest returns the member that hosts a singleton or will, as its proxy finds, and whether the
// instance is known to be there. It is the zero node if there is none, or no proxy.
func (m *Machine) Oldest(name string) (identity.Node, bool) {
	if p := m.findProxy(name); p != nil {
		return p.machine.Oldest()
	}
	return identity.Node{}, false
}
