// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"cmp"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

func (m *Machine) addMessage(s Shard, msg Message) uint64 {
	m.tokens++
	m.waiting[m.tokens] = message{s, m.now, msg}
	return m.tokens
}

func (m *Machine) takeMessage(token uint64) message {
	msg := m.waiting[token]
	delete(m.waiting, token)
	return msg
}

func (m *Machine) refuse(token uint64, why Reason) {
	msg := m.takeMessage(token)
	m.out.Refused = append(m.out.Refused, Refusal{msg.shard, msg.Message, why})
}

func (m *Machine) send(in Send) {
	if int(in.Shard) >= m.cfg.Coordinator.Shards {
		m.out.Refused = append(m.out.Refused, Refusal{in.Shard, in.Message, NoShard})
		return
	}
	m.regionStep(region.Send{Shard: in.Shard, Token: m.addMessage(in.Shard, in.Message)})
}

func (m *Machine) receive(in Received) {
	if in.Kind == KindRegion {
		p, err := region.DecodePacket(in.Data)
		switch {
		case err != nil:
			m.out.Malformed = append(m.out.Malformed, Malformed{in.From, err})
		case p.Type != m.cfg.Region.Type:
		case p.Kind != region.Forward && membership.Lookup(m.members.Members, in.From) == nil: // the sender repeats it
		case p.Kind != region.Forward:
			m.regionStep(region.FrameReceived{From: in.From, Frame: p.Frame})
		default:
			m.forwarded(Forwarded{From: in.From, Packet: p})
		}
		return
	}
	msg, err := coordinator.DecodeMessage(in.Data)
	switch {
	case err != nil:
		m.out.Malformed = append(m.out.Malformed, Malformed{in.From, err})
	case msg.Kind.ToCoordinator():
		m.stepCoordinator(coordinator.Received{From: in.From, Message: msg})
	default:
		m.regionStep(region.CoordinatorMessage{From: in.From, Message: msg})
	}
}

func (m *Machine) forwarded(in Forwarded) {
	p := in.Packet
	msg := Message{Entity: p.Entity, Body: p.Body, Decoded: in.Decoded}
	if int(p.Shard) >= m.cfg.Coordinator.Shards {
		m.out.Refused = append(m.out.Refused, Refusal{p.Shard, msg, NoShard})
		return
	}
	p.Token = m.addMessage(p.Shard, msg)
	m.regionStep(region.FrameReceived{From: in.From, Frame: p.Frame})
}

func (m *Machine) regionStep(in region.Input) {
	if changesRoutes(in) {
		m.routeVersion++
	}
	m.regionEffects(m.region.Step(m.now, in))
}

func (m *Machine) regionEffects(out region.Effects) {
	for _, r := range out.Refused {
		m.refuse(r.Token, r.Reason)
	}
	for _, a := range out.Actions {
		m.regionAction(a)
	}
	for _, f := range out.Frames {
		m.sendFrame(f)
	}
	for _, s := range out.Messages {
		m.sendToCoordinator(s)
	}
	m.out.CheckTerm = cmp.Or(out.CheckTerm, m.out.CheckTerm)
	m.stopped = m.stopped || out.Stopped
}

func (m *Machine) regionAction(a region.Action) {
	if a.Kind == region.Start {
		m.startRun(ShardRun{a.Shard, a.Generation})
		return
	}
	at := m.runs[a.Shard]
	if at == nil || at.Generation != a.Generation { // the run has just ended
		if a.Kind == region.Pass {
			m.refuse(a.Token, ShardFailed)
		}
		return
	}
	switch a.Kind {
	case region.Pass:
		m.runStep(at, shard.Deliver{Entity: m.waiting[a.Token].Entity, Token: a.Token})
	case region.HandOff:
		m.runStep(at, shard.HandOff{})
	case region.Abort:
		m.runStep(at, shard.Abort{})
	case region.Start:
	}
}

func (m *Machine) sendFrame(f region.OutgoingFrame) {
	o := Outgoing{To: f.To, Kind: KindRegion, packet: region.Packet{Type: m.cfg.Region.Type, Frame: f.Frame}}
	if f.Frame.Kind == region.Forward {
		o.Message = m.takeMessage(f.Frame.Token).Message
		o.packet.Token, o.packet.Entity, o.packet.Body = 0, o.Message.Entity, o.Message.Body
	}
	if o.Message.Local == nil {
		o.Data = region.AppendPacket(nil, o.packet)
	}
	m.out.Send = append(m.out.Send, o)
}

func (m *Machine) sendToCoordinator(s region.OutgoingMessage) {
	if s.To == m.self {
		m.queue = append(m.queue, func() { m.stepCoordinator(coordinator.Received{From: m.self, Message: s.Message}) })
		return
	}
	m.sendMessage(s.To, s.Message)
}

func (m *Machine) sendMessage(to identity.Node, msg coordinator.Message) {
	m.out.Send = append(m.out.Send, Outgoing{To: to, Kind: KindCoordinator, Data: coordinator.AppendMessage(nil, msg)})
}
