// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import "github.com/refold-io/refold/identity"

func (m *Machine) received(in Received) {
	switch {
	case m.loading:
		m.count.Dropped[DropLoading]++
	case !m.members.known[in.From]:
		m.count.Dropped[DropStranger]++
	default:
		m.receiveData(in.From, in.Data, false)
	}
}

// receiveData handles a message, which was put together from parts or is whole.
func (m *Machine) receiveData(from identity.Node, data []byte, assembled bool) {
	r := reader{b: data, known: m.keys}
	kind := r.head()
	var msg Message
	var ack Ack
	var delta Delta
	switch { // those that come most often are no values of an interface
	case r.err != nil:
	case kind == KindAck:
		ack = readAck(&r)
	case kind == KindDelta:
		delta = readDelta(&r, m.items)
		m.items = nil
	default:
		msg = readMessage(&r, kind)
	}
	if err := r.end(); err != nil {
		m.count.Dropped[DropMalformed]++
		m.note(Note{Kind: NoteMalformed, Node: from, Err: err})
		return
	}
	m.count.Received[kind]++
	m.heard++
	switch msg := msg.(type) {
	case nil:
		if kind == KindAck {
			m.receiveAck(from, ack)
		} else {
			m.receiveDelta(from, delta)
			m.items = reuse(delta.Items)
		}
	case Write:
		m.receiveWrite(from, msg)
	case Read:
		m.receiveRead(from, msg)
	case ReadResult:
		m.receiveResult(from, msg)
	case Root:
		m.receiveRoot(from, msg)
	case Groups:
		m.receiveGroups(from, msg)
	case Buckets:
		m.receiveBuckets(from, msg)
	case Keys:
		m.receiveKeys(from, msg)
	case Uses:
		m.receiveUses(msg)
	case Want:
		m.receiveWant(from, msg)
	case Gossip:
		m.receiveGossip(from, msg)
	case Pull:
		m.receivePull(from, msg)
	case Chunk:
		m.receiveChunk(from, msg)
	case Part:
		if assembled {
			m.count.Dropped[DropParts]++
			return
		}
		m.receivePart(from, msg)
	}
}
