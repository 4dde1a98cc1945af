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
	// maxPacket is up to how many bytes messages are put together, maxBulk if they are bulk: that is handled one packet at a time, and what
	// can't wait should not have to wait for long.
	maxPacket = 64 << 10
	maxBulk   = 16 << 10
	// Overhead is what a packet with one message takes beyond it, at most.
	Overhead = 2 + identity.MaxNameLength + binary.MaxVarintLen32
)

// errMalformed is matched by the errors about bytes that are no packet.
var errMalformed = errors.New("replica: malformed packet")

// Packet is what was received from a node. The payload must not be modified afterwards.
type Packet struct {
	From    identity.Node
	Payload []byte
}

// Send is a packet for a node.
type Send struct {
	To identity.Node
	// Bulk says that it goes on the lane for what is large and can wait; all else goes on that
	// for data.
	Bulk    bool
	Payload []byte
}

// NameOf returns the name of the replicator that a packet is for, which refers to the payload. It
// is false if there is none.
func NameOf(payload []byte) (name []byte, ok bool) {
	if len(payload) < 2 || payload[0] != version || len(payload) < 2+int(payload[1]) {
		return nil, false
	}
	return payload[2 : 2+int(payload[1])], true
}

// eachMessage calls f with each message of a packet, in order, up to the one that is
// malformed.
func eachMessage(payload []byte, f func(message []byte)) error {
	name, ok := NameOf(payload)
	if !ok {
		return fmt.Errorf("%w of %d bytes: no name", errMalformed, len(payload))
	}
	for rest := payload[2+len(name):]; len(rest) > 0; {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) { //nolint:gosec // not negative
			return fmt.Errorf("%w of %d bytes: a message of %d", errMalformed, len(payload), size)
		}
		f(rest[n : n+int(size)])  //nolint:gosec // at most what is there
		rest = rest[n+int(size):] //nolint:gosec // at most what is there
	}
	return nil
}

// group is what goes to one node on one lane in one packet.
type group struct {
	to       identity.Node
	bulk     bool
	messages [][]byte
	size     int
}

// pack puts together what goes to the same node on the same lane. Their order stays. It appends the packets.
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

// maxGroups is how many groups there are, at most, whose memory is used again.
const maxGroups = 64

// grown returns the groups with one more, in memory that one has had before if there is some.
func grown(groups []group) []group {
	if n := len(groups); n < cap(groups) {
		return groups[:n+1]
	}
	return append(groups, group{})
}
