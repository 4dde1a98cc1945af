// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

// Kind says what a message is about. It is chosen by those who speak to each
// other; the numbers of this module stand in package transport.
type Kind uint16

// Type is what a message is to the link.
type Type uint8

const (
	// Tell is a message of its own.
	Tell Type = 1
	// Request is a message that is answered by a Reply with the same
	// correlation number.
	Request Type = 2
	// Reply answers a Request. Its kind is a status.
	Reply Type = 3
)

// What only machines say to each other.
const (
	continuation Type = 4 // more of the message that the previous frame began
	grant        Type = 5 // kind: the lane, correlation: its epoch, payload: the limit
	notice       Type = 6 // correlation: the UID that is quarantined
)

// Message is what is sent and delivered.
type Message struct {
	Type Type
	Kind Kind
	// Correlation ties a Reply to its Request. It is 0 for the others.
	Correlation uint64
	// Compressed is kept for the receiver: the payload is compressed.
	Compressed bool
	Payload    []byte
}

// perMessage is what a message costs besides its payload, in bytes of credit.
// It stands for the memory around it, and keeps empty messages from being free.
const perMessage = 64

func cost(payload int) int { return payload + perMessage }
