// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import "reflect"

// Command makes the struct that embeds it a command to an S, answered with an R. S is the struct
// that is the state of the entity. Command has size zero.
//
//	type Deposit struct {
//		eventsourcing.Command[Account, int]
//		Amount int
//	}
type Command[S, R any] struct{}

func (Command[S, R]) message(*S) {}
func (Command[S, R]) reply(R)    {}

// replyType returns R, the type as which a reply from another node is decoded.
func (Command[S, R]) replyType() reflect.Type { return reflect.TypeFor[R]() }

// Notice makes the struct that embeds it a notice to an S: a message without a reply. It can be
// sent with Tell, and not with Ask.
type Notice[S any] struct{}

func (Notice[S]) message(*S) {}

// Message is a command or a notice to an S.
type Message[S any] interface{ message(*S) }

// Request is a command to an S that is answered with an R.
type Request[S, R any] interface {
	Message[S]
	reply(R)
}

// Ack is the reply to a command without a result.
type Ack struct{}

// None is the reply type in a Context of a notice or a signal, which have no reply.
type None struct{}
