// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"

	"github.com/refold-io/refold/identity"
)

// Carrier carries frames for one incarnation. It may lose them, carry them
// twice, or let one overtake another; the fewer the better. Its methods are safe
// for concurrent use.
type Carrier interface {
	// Self returns the incarnation.
	Self() identity.Node

	// MaxFrame returns the size of the largest frame, in bytes. It never
	// changes and is at least 1 KiB.
	MaxFrame() int

	// Start begins to receive. It is called once, before Send.
	Start(r Receiver) error

	// Send hands a frame on. To is an incarnation or, on the lane Control, a
	// bare name: a node with the UID 0. Send does not wait for the receiver. It may
	// wait for the connection, but not for the one of another lane if that is Control. The
	// frame is the caller's again when Send returns. An error says that it was
	// not sent; none does not say that it arrives.
	Send(lane Lane, to identity.Node, frame []byte) error

	// Close ends it. No method of the Receiver is running or called any more
	// when it returns, and a Send that waits ends. Later calls do nothing.
	Close() error
}

// Flusher is what a Carrier offers if it buffers frames.
type Flusher interface {
	// Flush returns when what was sent before has left the process.
	Flush(ctx context.Context) error
}

// Clustered is what a Carrier offers that carries frames within one cluster only.
type Clustered interface {
	// Cluster returns the name of the cluster. It never changes.
	Cluster() string
}

// Receiver is what a Carrier gives its frames to. A Transport is one.
type Receiver interface {
	// Receive takes a frame that came on a lane. From is the name of the node
	// that sent it, which the sender could not choose. The frame belongs to the
	// receiver. It does not block. Frames of one sender on one lane come one at a
	// time and in order.
	Receive(lane Lane, from string, frame []byte)

	// Connection says that the carrier is connected now, with a nil error, or why
	// it is not. A carrier is taken to be connected when it starts. It does not
	// block.
	Connection(err error)
}

// Operable is what a Carrier offers if operators can ask its node for
// something: people and their tools, who are not nodes and have no links.
type Operable interface {
	// Operate begins to hand on what operators ask the node, by its name or as any
	// node of the cluster. It is called at most once, after Start. Take does not
	// block, and is not called any more when Close has returned.
	Operate(take func(AdminRequest)) error
}

// AdminRequest is what an operator asks.
type AdminRequest struct {
	// Operator is the name of who asks, which the carrier vouches for as it does for
	// the sender of a frame.
	Operator string
	// Payload belongs to whoever takes the request.
	Payload []byte
	// Reply answers, once, from any goroutine. The error is nil or matches ErrNoHandler,
	// ErrBackpressure, ErrTooLarge, ErrHandlerFailed or ErrClosed, and whoever asked
	// gets one that matches the same. An answer has at most Carrier.MaxFrame bytes. It
	// may be lost.
	Reply func(answer []byte, err error)
}

// Asker asks nodes on behalf of an operator. Its methods are safe for concurrent
// use.
type Asker interface {
	// Ask sends a request to the node with a name, or to any one that is there if the name
	// is empty, and waits for the answer or the end of ctx. A request to any
	// node may reach a second one if the first does not answer, so it must be one that can
	// be repeated. The error matches ErrNobody if there is no such node, ErrTooLarge if
	// the request has more than MaxAdminRequest bytes, or is the one of the node: see
	// AdminRequest.
	Ask(ctx context.Context, node string, request []byte) ([]byte, error)
	// Close ends it.
	Close() error
}
