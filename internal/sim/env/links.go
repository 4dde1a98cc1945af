// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

const maxFrame = 1 << 20

// connect creates the links of a process.
func (p *Process) connect() {
	if p.w.Direct {
		return
	}
	links, err := link.New(link.Config{Self: p.node, MaxFrame: maxFrame})
	if err != nil {
		panic(fmt.Sprintf("sim: links of %v: %v", p.node, err)) // the simulator's names are valid
	}
	p.links = links
}

// Send sends a message after the current event, in order and at most once on each lane. It returns
// false if the links have no room.
func (p *Process) Send(to identity.Node, lane link.Lane, kind link.Kind, data []byte) bool {
	p.w.traffic.Messages[lane]++
	if p.links == nil {
		p.w.transmit(p, to, event{data: data, kind: uint16(kind), lane: uint8(lane)})
		p.w.traffic.Bytes[lane] += headerSize(p.node)
		return true
	}
	return p.links.Send(to, lane, link.Message{Type: link.Tell, Kind: kind, Payload: data}) == nil
}

// headerSize is the approximate size that a frame adds to a message.
func headerSize(from identity.Node) uint64 {
	return uint64(len(link.AppendFrame(nil, link.Frame{From: from, To: from.UID, Sequenced: true, Epoch: 1 << 8, Number: 1 << 8, Offset: 0}))) + 4
}

// flush sends the queued frames of the links.
func (p *Process) flush() {
	if p.links == nil || p.dead {
		return
	}
	for lane := range link.Lane(link.Lanes) {
		for p.links.Pending(lane) {
			to, frame, ok := p.links.Flush(p.Now(), lane, nil)
			if !ok {
				break
			}
			p.w.transmit(p, to, event{data: frame, lane: uint8(lane)})
		}
	}
	if due, waits := p.links.Due(); waits {
		if at := max(p.w.now, p.global(due)); p.linkAt == 0 || at < p.linkAt {
			p.linkAt = at
			p.w.queue.push(event{at: at, to: p})
		}
	}
}

// receive decodes a frame and delivers its messages.
func (p *Process) receive(e *event) {
	lane := link.Lane(e.lane)
	if p.links == nil {
		to := p.node
		if e.name {
			to.UID = 0
		}
		p.program.Receive(Message{From: e.from.node, To: to, Lane: lane, Kind: link.Kind(e.kind), Arrived: p.Now(), Data: e.data})
		return
	}
	effects := p.links.Receive(p.Now(), lane, e.from.node.Name, e.data)
	if effects.Lost > 0 {
		p.w.gap(e.from, p, true)
	}
	if effects.Dropped == link.WrongReceiver {
		p.stray(e)
		return
	}
	for _, d := range effects.Deliver {
		p.links.Consume(effects.From, lane, d.Cost)
		to := p.node
		if d.Named {
			to.UID = 0
		}
		if p.dead { // the previous message has ended it
			return
		}
		p.program.Receive(Message{From: effects.From, To: to, Lane: lane, Kind: d.Kind, Arrived: p.Now(), Data: d.Payload})
	}
}

// stray delivers a message for an earlier incarnation to the program, as if the links had accepted
// it. The program must ignore it.
func (p *Process) stray(e *event) {
	f, err := link.DecodeFrame(e.data)
	if err != nil {
		return
	}
	was := identity.Node{Name: p.node.Name, UID: f.To}
	if links, err := link.New(link.Config{Self: was, MaxFrame: maxFrame}); err == nil {
		for _, d := range links.Receive(p.Now(), link.Lane(e.lane), e.from.node.Name, e.data).Deliver {
			p.program.Receive(Message{From: f.From, To: was, Lane: link.Lane(e.lane), Kind: d.Kind, Arrived: p.Now(), Data: d.Payload})
		}
	}
}
