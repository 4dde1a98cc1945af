// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"time"

	"github.com/refold-io/refold/internal/shardcore/region"
)

// Way returns where messages for a shard go, and whose go there at once, past the machine: to another node, or to an entity that runs
// here. Whoever lets them go there tells by Touch.
func (m *Machine) Way(s Shard) region.Way { return m.region.Way(s) }

// Turn changes when the way of any shard may have changed, but for that of the shard of a Send, or of a message that was received.
func (m *Machine) Turn() uint64 { return m.turn }

// Touch tells that entities of a shard have been needed.
func (m *Machine) Touch(now time.Duration, s Shard, entities []string) Effects {
	m.now = max(m.now, now)
	if at := m.runs[s]; at != nil {
		m.runEffects(at, at.m.Touch(m.now, entities))
	}
	return m.end()
}

// turns reports whether an input may change the way of another shard than its own.
func turns(in region.Input) bool {
	switch in := in.(type) {
	case region.Send:
		return false
	case region.Arrived:
		return in.Frame.Kind != region.Forward
	}
	return true
}
