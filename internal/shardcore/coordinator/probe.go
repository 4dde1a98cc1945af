// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// probe finds out which regions respond, before shards are allocated to any of them. It takes some
// seconds until a stalled node is unreachable; until then it would get each new shard, because it
// has the fewest. Each region is sent a Host without shards and replies Hosted.
type probe struct {
	round   uint64          // 0: no probe is running
	waiting []identity.Node // regions that have not responded, sorted
	due     time.Duration   // end of the wait
}

// probed reports whether the probe of the view's regions has ended. It starts one if none is
// running.
func (m *Machine) probed(view *allocation.View) bool {
	if m.probe.round == 0 {
		m.startProbe(view)
	}
	return len(m.probe.waiting) == 0
}

// startProbe sends the probes. It does not wait for regions that did not respond to the last probe.
func (m *Machine) startProbe(view *allocation.View) {
	m.probe = probe{round: m.nextRound(), due: m.now + m.cfg.ProbeTimeout}
	m.silent = slices.DeleteFunc(m.silent, func(n identity.Node) bool {
		_, found := allocation.Find(view.Regions, n)
		return !found
	})
	for _, r := range view.Regions {
		if r.Node == m.cfg.Self || has(view.Unreachable, r.Node) || !m.isRegistered(r.Node) { // a region whose registration is being stored has just sent it
			continue
		}
		if !has(m.silent, r.Node) {
			m.probe.waiting = with(m.probe.waiting, r.Node)
		}
		if m.instances[r.Node] != 0 { // another one has been invited and responds by registering
			m.send(r.Node, Message{Kind: Host, Round: m.probe.round})
		}
	}
}

// regionResponded records that a region is alive. Any message proves that it has not stalled for
// long, but only the response to the running probe ends the wait for it.
func (m *Machine) regionResponded(n identity.Node, msg *Message) {
	m.silent = without(m.silent, n)
	if msg.Kind == Register || msg.Kind == Hosted && msg.Round == m.probe.round {
		m.probe.waiting = without(m.probe.waiting, n)
	}
}

// tickProbe ends the probe when it times out.
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

// withoutSilent returns the view for an allocation, in which silent regions are unreachable.
func (m *Machine) withoutSilent(view allocation.View) allocation.View {
	m.probe = probe{}
	view.Unreachable = slices.Clone(view.Unreachable)
	for _, n := range m.silent {
		view.Unreachable = with(view.Unreachable, n)
	}
	return view
}
