// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// probe finds out which regions are there, before shards are given to any of them: a node that stands still is not known to for
// some seconds, and would get the next shard, as the one that has the least. Each is told to host no shards, and says that it does.
type probe struct {
	round   uint64          // 0: none is open
	waiting []identity.Node // who has not answered, sorted
	due     time.Duration   // when nobody is waited for any longer
}

// probed reports whether it is known which of the regions are there. If it is not, they are asked.
func (m *Machine) probed(view *allocation.View) bool {
	if m.probe.round == 0 {
		m.startProbe(view)
	}
	return len(m.probe.waiting) == 0
}

// startProbe asks the regions. Those that have not answered the last time are not waited for.
func (m *Machine) startProbe(view *allocation.View) {
	m.probe = probe{round: m.nextRound(), due: m.now + m.cfg.ProbeTimeout}
	m.silent = slices.DeleteFunc(m.silent, func(n identity.Node) bool {
		_, found := allocation.Find(view.Regions, n)
		return !found
	})
	for _, r := range view.Regions {
		if r.Node == m.cfg.Self || has(view.Unreachable, r.Node) || !m.knows(r.Node) { // whose registration is being stored has just said something
			continue
		}
		if !has(m.silent, r.Node) {
			m.probe.waiting = with(m.probe.waiting, r.Node)
		}
		if m.instances[r.Node] != 0 { // or it has been invited, and answers by registering
			m.send(r.Node, Message{Kind: Host, Round: m.probe.round})
		}
	}
}

// heard takes note that a region is there: by any message, as it has not stood still for long then, but for the probe that is open.
func (m *Machine) heard(n identity.Node, msg *Message) {
	m.silent = without(m.silent, n)
	if msg.Kind == Register || msg.Kind == Hosted && msg.Round == m.probe.round {
		m.probe.waiting = without(m.probe.waiting, n)
	}
}

// tickProbe waits for nobody any longer when it is time.
func (m *Machine) tickProbe() {
	if m.now < m.probe.due {
		return
	}
	for _, n := range m.probe.waiting {
		m.silent = with(m.silent, n)
		m.note(Note{Kind: Silent, Node: n})
	}
	m.probe.waiting = nil
}

// present is what a strategy decides upon who gives shards a home: those that are silent count as unreachable.
func (m *Machine) present(view allocation.View) allocation.View {
	m.probe = probe{}
	view.Unreachable = slices.Clone(view.Unreachable)
	for _, n := range m.silent {
		view.Unreachable = with(view.Unreachable, n)
	}
	return view
}
