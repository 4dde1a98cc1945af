// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"iter"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// Registered reports whether a coordinator knows the region.
func (m *Machine) Registered() bool { return m.region.Registered() }

// Refused returns the node and the settings of the coordinator that does not let the region register, since it has others; nil if there is
// none.
func (m *Machine) Refused() (identity.Node, *coordinator.Settings) { return m.region.Refused() }

// Instance counts the regions of the node, and how often they have come back.
func (m *Machine) Instance() uint64 { return m.region.Instance() }

// Leaving reports whether the region takes no shards any more.
func (m *Machine) Leaving() bool { return m.region.Leaving() }

// Boss returns the node whose coordinator the region is registered with.
func (m *Machine) Boss() (identity.Node, bool) { return m.region.Coordinator() }

// Likely returns the nodes that may have the coordinator. It must not be changed.
func (m *Machine) Likely() []identity.Node { return m.region.Likely() }

// Silence returns how long no coordinator has said anything, since one was asked: see region.Machine.
func (m *Machine) Silence() time.Duration { return m.region.Silence() }

// Home returns where a shard is, if that is known.
func (m *Machine) Home(s Shard) (identity.Node, bool) { return m.region.Home(s) }

// Hosted returns the shards of this node, sorted, also those that don't run at the moment.
func (m *Machine) Hosted() []Shard { return m.region.Hosted() }

// Running returns the entities of a shard that run on this node, sorted.
func (m *Machine) Running(s Shard) []string {
	if at := m.runs[s]; at != nil {
		return at.m.Running()
	}
	return nil
}

// Tracked returns how many entities a shard on this node knows: those that run, and those that will.
func (m *Machine) Tracked(s Shard) int {
	if at := m.runs[s]; at != nil {
		return at.m.Len()
	}
	return 0
}

// Waiting returns how many messages wait on this node, for homes, shards or entities.
func (m *Machine) Waiting() int { return len(m.waiting) }

// Buffered is a message that waits for a home, or for a shard.
type Buffered struct {
	Message

	Token  uint64
	Waited time.Duration // since it came to this node
}

// Buffered returns those that wait in the region.
func (m *Machine) Buffered(now time.Duration) iter.Seq[Buffered] {
	return func(yield func(Buffered) bool) {
		for token := range m.region.Tokens() {
			if msg := m.waiting[token]; !yield(Buffered{msg.Message, token, now - msg.since}) {
				return
			}
		}
	}
}

// Coordinator returns the coordinator if it is on this node. It must not be told anything.
func (m *Machine) Coordinator() *coordinator.Machine { return m.coordinator.m }
