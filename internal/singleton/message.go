// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"encoding/binary"
	"fmt"
)

// Kind is what a message says.
type Kind uint8

// The numbers are those of the encoding and never change.
const (
	// HandOverToMe asks the previous oldest to end its instance.
	HandOverToMe Kind = 1 + iota
	// HandOverInProgress answers that it is about to.
	HandOverInProgress
	// HandOverDone answers that there is none.
	HandOverDone
	// TakeOverFromMe asks the next oldest to ask for a hand-over.
	TakeOverFromMe
	// Identify asks a manager, for a proxy, whether the instance is there.
	Identify
	// Identified answers that it is.
	Identified
	// InstanceGone says to those who asked that it no longer is.
	InstanceGone
)

func (k Kind) String() string {
	switch k {
	case HandOverToMe:
		return "hand over to me"
	case HandOverInProgress:
		return "hand-over in progress"
	case HandOverDone:
		return "hand-over done"
	case TakeOverFromMe:
		return "take over from me"
	case Identify:
		return "identify"
	case Identified:
		return "identified"
	case InstanceGone:
		return "instance gone"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Message is what one manager says to another. Who says it to whom is on the
// envelope.
type Message struct {
	Kind Kind
	// Singleton is the name of the singleton.
	Singleton string
	// Round tells the questions of one asker apart. Answers have that of the question;
	// TakeOverFromMe and InstanceGone have none.
	Round uint64
	// Hosted says in HandOverDone that the answering manager was the oldest, and no
	// other than it had an instance.
	Hosted bool
}

// version is the first byte of each encoded message. A newer minor version only
// adds fields at the end.
const version = 1

// MaxMessage is the largest number of bytes that an encoded message has.
const MaxMessage = 512

const hosted = 1 // flag

// AppendMessage appends an encoded message: version, kind, flags, the round and the name
// with their lengths as varints.
func AppendMessage(dst []byte, m Message) []byte {
	flags := byte(0)
	if m.Hosted {
		flags |= hosted
	}
	dst = append(dst, version, byte(m.Kind), flags)
	dst = binary.AppendUvarint(dst, m.Round)
	dst = binary.AppendUvarint(dst, uint64(len(m.Singleton)))
	return append(dst, m.Singleton...)
}

// DecodeMessage reads an encoded message. Bytes behind it are a newer version's and are
// skipped. The error matches ErrInvalid.
func DecodeMessage(b []byte) (Message, error) {
	switch {
	case len(b) > MaxMessage:
		return Message{}, fmt.Errorf("%w: message of %d bytes, more than %d", ErrInvalid, len(b), MaxMessage)
	case len(b) < 3:
		return Message{}, fmt.Errorf("%w: message of %d bytes is cut off", ErrInvalid, len(b))
	case b[0] != version:
		return Message{}, fmt.Errorf("%w: message of version %d, known is %d", ErrInvalid, b[0], version)
	}
	m := Message{Kind: Kind(b[1]), Hosted: b[2]&hosted != 0}
	if m.Kind < HandOverToMe || m.Kind > InstanceGone {
		return Message{}, fmt.Errorf("%w: message of kind %d", ErrInvalid, b[1])
	}
	b = b[3:]
	round, n := binary.Uvarint(b)
	if n <= 0 {
		return Message{}, fmt.Errorf("%w: message %v has no round", ErrInvalid, m.Kind)
	}
	m.Round, b = round, b[n:]
	length, n := binary.Uvarint(b)
	if n <= 0 || length > MaxNameLength || int(length) > len(b)-n {
		return Message{}, fmt.Errorf("%w: message %v has no name", ErrInvalid, m.Kind)
	}
	m.Singleton = string(b[n : n+int(length)])
	return m, nil
}
