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
