// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

const (
	// version is the first byte of packets.
	version = 1
	// maxPacket is the size up to which messages are combined into a packet, maxBulk that of bulk
	// messages: bulk packets are processed one at a time, and urgent packets wait for one.
	maxPacket = 64 << 10
	maxBulk   = 16 << 10
	// Overhead is the maximum size of a packet with one message, without the message.
	Overhead = 2 + identity.MaxNameLength + binary.MaxVarintLen32
)

// errMalformed matches errors about bytes that are not a packet.
var errMalformed = errors.New("replica: malformed packet")

// Packet is a received packet. The payload must not be modified afterwards.
type Packet struct {
	From    identity.Node
	Payload []byte
}

// Send is a packet for a node.
type Send struct {
	To identity.Node
	// Bulk selects the bulk lane of the transport instead of the data lane.
	Bulk    bool
	Payload []byte
}

// NameOf returns the name of the replicator that a packet is for, as a part of the payload. ok is
// false if the payload is malformed.
func NameOf(payload []byte) (name []byte, ok bool) {
	if len(payload) < 2 || payload[0] != version || len(payload) < 2+int(payload[1]) {
		return nil, false
	}
	return payload[2 : 2+int(payload[1])], true
}

// eachMessage calls f with each message of a packet, in order, up to the first malformed one.
func eachMessage(payload []byte, f func(message []byte)) error {
	name, ok := NameOf(payload)
	if !ok {
		return fmt.Errorf("%w: %d bytes without a name", errMalformed, len(payload))
	}
	for rest := payload[2+len(name):]; len(rest) > 0; {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) { //nolint:gosec // not negative
			return fmt.Errorf("%w: message of %d bytes in a packet of %d", errMalformed, size, len(payload))
		}
		f(rest[n : n+int(size)])  //nolint:gosec // at most what is there
		rest = rest[n+int(size):] //nolint:gosec // at most what is there
	}
	return nil
}

// group is the messages to one node on one lane in one packet.
type group struct {
	to       identity.Node
	bulk     bool
	messages [][]byte
	size     int
}

// pack combines the messages to each node and lane into packets, in order, and appends them to out.
func (m *Machine) pack(out []Send, sends []replication.Send) []Send {
	groups := m.groups[:0]
	for i := range sends {
		s := &sends[i]
		size := len(s.Data) + binary.MaxVarintLen32
		most := maxPacket
		if s.Bulk {
			most = maxBulk
		}
		at := len(groups) - 1
		for at >= 0 && (groups[at].bulk != s.Bulk || groups[at].to != s.To) {
			at--
		}
		if at < 0 || groups[at].size+size > most {
			at = len(groups)
			groups = grown(groups)
			groups[at].to, groups[at].bulk, groups[at].size = s.To, s.Bulk, 2+len(m.name)
		}
		g := &groups[at]
		g.messages = append(g.messages, s.Data)
		g.size += size
	}
	for i := range groups {
		g := &groups[i]
		b := append(make([]byte, 0, g.size), version, byte(len(m.name))) //nolint:gosec // at most identity.MaxNameLength
		b = append(b, m.name...)
		for _, msg := range g.messages {
			b = append(binary.AppendUvarint(b, uint64(len(msg))), msg...)
		}
		out = append(out, Send{To: g.to, Bulk: g.bulk, Payload: b})
		g.messages = reuse(g.messages)
	}
	if m.groups = groups; cap(groups) > maxGroups {
		m.groups = nil
	}
	return out
}

// maxGroups is the maximum number of groups whose memory is reused.
const maxGroups = 64

// grown returns groups with one more, reusing memory of a former group.
func grown(groups []group) []group {
	if n := len(groups); n < cap(groups) {
		return groups[:n+1]
	}
	return append(groups, group{})
}
