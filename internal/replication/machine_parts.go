// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	// maxAssemblies is how many messages that come in parts are put together at a time.
	maxAssemblies = 4
	// assemblyTTL is after which time the parts of one are given up.
	assemblyTTL = 30 * time.Second
	// partOverhead is what a part takes beyond its data.
	partOverhead = 64
)

// assembly is a message that comes in parts.
type assembly struct {
	from  identity.Node
	nr    uint64
	since time.Duration
	parts uint64 // that have come
	data  []byte
}

// split sends a message in parts, because it is larger than a message may be: nodes
// have added to a value at the same time.
func (m *Machine) split(to identity.Node, bulk bool, data []byte) {
	size := m.cfg.MaxMessage - partOverhead
	count := uint64((len(data) + size - 1) / size) //nolint:gosec // not negative
	m.parts++
	nr := m.parts
	i := uint64(0)
	for piece := range slices.Chunk(data, size) {
		m.send(to, bulk, Part{Nr: nr, Index: i, Count: count, Data: piece})
		i++
	}
}

// receivePart puts a message together. What comes in another order is dropped: a
// lane keeps it.
func (m *Machine) receivePart(from identity.Node, in Part) {
	i := slices.IndexFunc(m.assemblies, func(a *assembly) bool { return a.from == from && a.nr == in.Nr })
	switch {
	case in.Index == 0 && i < 0:
		if len(m.assemblies) >= maxAssemblies {
			m.assemblies = slices.Delete(m.assemblies, 0, 1)
			m.count.Dropped[DropParts]++
		}
		i = len(m.assemblies)
		m.assemblies = append(m.assemblies, &assembly{from: from, nr: in.Nr, since: m.now})
	case i < 0:
		m.count.Dropped[DropParts]++
		return
	}
	a := m.assemblies[i]
	if in.Index != a.parts || len(a.data)+len(in.Data) > MaxMessage {
		m.assemblies = slices.Delete(m.assemblies, i, i+1)
		m.count.Dropped[DropParts]++
		return
	}
	a.data = append(a.data, in.Data...)
	if a.parts++; a.parts < in.Count {
		return
	}
	m.assemblies = slices.Delete(m.assemblies, i, i+1)
	m.receiveData(from, a.data, true)
}

// dropParts gives up messages whose parts do not come.
func (m *Machine) dropParts() {
	m.assemblies = slices.DeleteFunc(m.assemblies, func(a *assembly) bool { return m.now-a.since > assemblyTTL })
}
