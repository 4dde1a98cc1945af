// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import "github.com/refold-io/refold/identity"

// Way says where messages for a shard go, and whose go there at once: nothing waits before them, and that they go changes
// nothing in the region.
type Way struct {
	// Home is the node.
	Home identity.Node
	// Own says that messages of this node do.
	Own bool
	// Others says that messages of other nodes do, to this one.
	Others bool
}

// Way returns that of a shard. It is as it was until the next step, but for what a Send or a forwarded message does to the way of its own
// shard.
func (m *Machine) Way(s Shard) Way {
	if m.stopped || m.stopping || m.goes() {
		return Way{}
	}
	b := m.buffers[s]
	if h := m.hosts[s]; h != nil {
		if !h.running || h.stopping {
			return Way{}
		}
		_, used := m.path[sent][s]
		return Way{
			Home: m.cfg.Self, Own: b == nil && !h.moving && !used && m.flushing[sent][s] == nil,
			Others: b == nil || len(b.first)+len(b.second) == 0,
		}
	}
	n, found := m.homes[s]
	if !found || b != nil || m.path[sent][s] != n || m.flushing[sent][s] != nil {
		return Way{}
	}
	return Way{Home: n, Own: true}
}
