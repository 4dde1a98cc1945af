// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"github.com/refold-io/refold/identity"
)

// The numbers of a gossip only grow. A forged number near the end of its range would leave no number
// for the next change, and the membership could never change again. Therefore a node accepts only
// numbers that its clock has reached, and this bound grows faster than the numbers of any cluster:
// a change takes longer than a microsecond, and on average a node starts less often than once a
// second. A forged number below the bound has no effect on the next change.
const (
	// leastCount and leastUpNumber are accepted at any time, in case the clock of the node is wrong.
	leastCount    = 1 << 32
	leastUpNumber = 1 << 20
	// upNumbersSince is the time from which the bound of up-numbers counts the seconds: 2020, in
	// seconds of Unix time. The bound stays below lastUpNumber until the year 2088.
	upNumbersSince = 1_577_836_800
	// lastUpNumber is the greatest number of a member that has been Up.
	lastUpNumber = identity.NeverUp - 1
)

// tooFarAhead returns the name of the first number in a received gossip that is above its bound, or
// the empty string.
func (m *Machine) tooFarAhead(g Gossip) string {
	wall := m.cfg.Started.Add(m.now)
	count := uint64(max(leastCount, wall.UnixMicro()))
	up := min(max(leastUpNumber, wall.Unix()-upNumbersSince), lastUpNumber)
	for _, o := range g.Members() {
		if o.UpNumber != identity.NeverUp && int64(o.UpNumber) > up {
			return "up-number of " + o.Node.String()
		}
	}
	for _, t := range g.Clock() {
		if t.Count > count {
			return "tick of " + t.Node.String()
		}
	}
	for _, o := range g.Reachability().Observers {
		if o.Version > count {
			return "observations of " + o.Node.String()
		}
		for _, rec := range o.Records {
			if rec.Version > o.Version {
				return "observation of " + rec.Subject.String() + " by " + o.Node.String()
			}
		}
	}
	for _, t := range g.Tombstones() {
		if t.Count > count {
			return "tombstone of " + t.Node.String()
		}
	}
	return ""
}
