// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/refold-io/refold/identity"
)

// All replicators of a node share one message kind. A packet consists of a version byte, the name
// of its replicator, and any number of messages of one sender. Each message is preceded by its
// length. The messages that one step of the machine sends to the same node are combined.
const (
	packetVersion = 1
	// maxPacket is the size up to which messages are combined into a packet, and maxBulk is the
	// same for bulk messages. maxBulk also limits the entries in a bulk message. Bulk packets are
	// processed one at a time. Each takes some hundred microseconds, and urgent packets and
	// requests wait during this time.
	maxPacket = 64 << 10
	maxBulk   = 16 << 10
	// Overhead is the maximum number of bytes that a packet with one message has in addition to
	// that message.
	Overhead = 2 + identity.MaxNameLength + binary.MaxVarintLen32
)

// NameOf returns the name of the replicator that receives a packet. The name shares memory with the
// payload. ok is false if the payload is malformed.
func NameOf(payload []byte) (name []byte, ok bool) {
	if len(payload) < 2 || payload[0] != packetVersion || len(payload) < 2+int(payload[1]) {
		return nil, false
	}
	return payload[2 : 2+int(payload[1])], true
}

// receivePacket handles the messages of a packet, in order, up to the first malformed one.
func (m *Machine) receivePacket(p *Packet) {
	name, ok := NameOf(p.Payload)
	if !ok {
		m.malformedPacket(p, "no name")
		return
	}
	for rest := p.Payload[2+len(name):]; len(rest) > 0; {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) { //nolint:gosec // not negative
			m.malformedPacket(p, "message is truncated")
			return
		}
		end := n + int(size) //nolint:gosec // within rest
		if !m.stopped {
			m.receive(p.From, rest[n:end])
			m.endInput()
		}
		rest = rest[end:]
	}
}

func (m *Machine) malformedPacket(p *Packet, problem string) {
	m.count.Malformed++
	m.note(Note{Kind: NoteMalformed, Node: p.From, Err: fmt.Errorf("%w: packet of %d bytes: %s", ErrMalformed, len(p.Payload), problem)})
}

// message is an encoded message to a node. The data may be shared and must not be modified.
type message struct {
	to   identity.Node
	bulk bool
	data []byte
}

type group struct {
	to       identity.Node
	bulk     bool
	messages [][]byte
	size     int
}

// packSends combines the messages to each node and lane into packets, in order.
func (m *Machine) packSends() {
	groups := m.groups[:0]
	for i := range m.sends {
		s := &m.sends[i]
		size := len(s.data) + binary.MaxVarintLen32
		most := maxPacket
		if s.bulk {
			most = maxBulk
		}
		at := len(groups) - 1
		for at >= 0 && (groups[at].bulk != s.bulk || groups[at].to != s.to) {
			at--
		}
		if at < 0 || groups[at].size+size > most {
			at = len(groups)
			groups = slices.Grow(groups, 1)[:at+1] // may reuse the memory of a former group
			groups[at].to, groups[at].bulk, groups[at].size = s.to, s.bulk, 2+len(m.cfg.Name)
		}
		g := &groups[at]
		g.messages = append(g.messages, s.data)
		g.size += size
	}
	m.sends = reuse(m.sends)
	for i := range groups {
		g := &groups[i]
		b := append(make([]byte, 0, g.size), packetVersion, byte(len(m.cfg.Name))) //nolint:gosec // at most identity.MaxNameLength
		b = append(b, m.cfg.Name...)
		for _, msg := range g.messages {
			b = append(binary.AppendUvarint(b, uint64(len(msg))), msg...)
		}
		m.out.Send = append(m.out.Send, Send{To: g.to, Bulk: g.bulk, Payload: b})
		g.messages = reuse(g.messages)
	}
	if m.groups = groups; cap(groups) > maxGroups {
		m.groups = nil
	}
}

// maxGroups is the maximum number of groups whose memory is reused.
const maxGroups = 64
