// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

// leaseOf is the name of the lease of a singleton.
func (m *Machine) leaseOf(name string) string { return m.leasePrefix() + name }

func (m *Machine) leasePrefix() string { return m.cfg.Cluster + "-singleton-" }

// ofLease returns the singleton that a lease belongs to, or nil.
func (m *Machine) ofLease(lease string) *hosted {
	name, ok := strings.CutPrefix(lease, m.leasePrefix())
	if !ok {
		return nil
	}
	return m.find(name)
}

// resolves reports whether a lease is that of the resolver.
func (m *Machine) resolves(lease string) bool {
	return m.cfg.Downing.Strategy == splitbrain.LeaseMajority && lease == m.cfg.Downing.LeaseName
}

func (m *Machine) leaseAnswered(in LeaseAnswer) {
	if in.Held {
		m.count.LeasesHeld++
	} else {
		m.count.LeasesNotHeld++
	}
	if m.resolves(in.Lease) {
		owner, _ := identity.Parse(in.Owner) // nobody, if it is none
		m.decide(m.resolver.Step(m.now, splitbrain.LeaseAnswer{Held: in.Held, Owner: owner}))
		return
	}
	m.hostedStep(m.ofLease(in.Lease), singleton.LeaseAnswer{Held: in.Held})
}

func (m *Machine) leaseReleased(in LeaseReleased) {
	if m.resolves(in.Lease) {
		m.decide(m.resolver.Step(m.now, splitbrain.LeaseReleased{Done: in.Done}))
		return
	}
	m.hostedStep(m.ofLease(in.Lease), singleton.LeaseReleased{})
}

// leaseLost tells the machine that held it.
func (m *Machine) leaseLost(in LeaseLost) {
	m.count.LeasesLost++
	if m.resolves(in.Lease) {
		m.decide(m.resolver.Step(m.now, splitbrain.LeaseLost{}))
		return
	}
	m.hostedStep(m.ofLease(in.Lease), singleton.LeaseLost{})
}
