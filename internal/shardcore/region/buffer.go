// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"maps"
	"slices"

	"github.com/refold-io/refold/identity"
)

// message waits.
type message struct {
	token uint64
	from  identity.Node // none: of this node
	hop   int           // it was passed on by another region that is not the home
}

// buffer is what waits for a shard, in lines that don't wait for each other: each has other reasons to wait, and all in it has the
// same.
type buffer struct {
	own    []message // of this node
	first  []message // of others, and may be passed on
	second []message // of others, and was passed on
}

func (b *buffer) lines() [3]*[]message { return [3]*[]message{&b.second, &b.first, &b.own} }

// of returns the line that a message belongs in.
func (b *buffer) of(msg message) *[]message {
	switch {
	case msg.from.IsZero():
		return &b.own
	case msg.hop > 0:
		return &b.second
	}
	return &b.first
}

// tidy forgets a buffer that is empty.
func (m *Machine) tidy(s Shard) {
	if b := m.buffers[s]; b != nil && len(b.own)+len(b.first)+len(b.second) == 0 {
		delete(m.buffers, s)
	}
}

// refuseAll refuses what waits in a line, if it is to go.
func (m *Machine) refuseAll(s Shard, line *[]message, reason Reason, which func(message) bool) {
	var kept []message
	for _, msg := range *line {
		if which(msg) {
			m.refuse(s, msg.token, reason)
			m.buffered--
			continue
		}
		kept = append(kept, msg)
	}
	*line = kept
}

func all(message) bool { return true }

// drop refuses what nobody waits for any more. The others in a line have the same reasons to wait as before.
func (m *Machine) drop(tokens []uint64) {
	gone := make(map[uint64]struct{}, len(tokens))
	for _, token := range tokens {
		gone[token] = struct{}{}
	}
	for _, s := range slices.Sorted(maps.Keys(m.buffers)) {
		for _, line := range m.buffers[s].lines() {
			m.refuseAll(s, line, GivenUp, func(msg message) bool { _, found := gone[msg.token]; return found })
		}
		m.tidy(s)
	}
}
