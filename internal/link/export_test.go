// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

// Continuation is the type of the parts of a message after the first.
const Continuation = continuation

// HeldOf returns the cost of the unconsumed messages of a name.
func (m *Machine) HeldOf(name string) int {
	if at := m.names[name]; at != nil {
		return at.held[Control] + at.held[Data] + at.held[Bulk]
	}
	return 0
}

// AppendMessages appends whole messages to the body of a frame.
func AppendMessages(dst []byte, msgs ...Message) []byte {
	for _, msg := range msgs {
		dst = appendEntry(dst, entry{Message: msg})
	}
	return dst
}

// AppendPart appends a part of a message; rest bytes of the message follow in later parts.
func AppendPart(dst []byte, msg Message, rest uint64) []byte {
	return appendEntry(dst, entry{Message: msg, rest: rest})
}

// AppendNotice appends a Quarantined notice.
func AppendNotice(dst []byte, uid uint64) []byte {
	return appendEntry(dst, entry{Message: Message{Type: notice, Correlation: uid}})
}
