// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// MinFrame is the smallest MaxFrame of a carrier, in bytes.
const MinFrame = link.MinFrame

// Carrier carries frames for one incarnation. It may lose, duplicate and reorder frames, but should
// do so rarely. Its methods are safe for concurrent use.
type Carrier interface {
	// Self returns the local incarnation.
	Self() identity.Node

	// MaxFrame returns the size of the largest frame, in bytes. It never changes and is at least
	// MinFrame.
	MaxFrame() int

	// Start begins to receive. It is called once, before Send.
	Start(r Receiver) error

	// Send sends a frame to an incarnation or, on the lane Control, to a bare name, which is a node
	// with the UID 0. Send does not wait for the receiver. It may wait for the connection. On the
	// lane Control it does not wait for the connection of another lane. The caller may reuse the
	// frame when Send returns. An error means that the frame was not sent; nil does not mean that
	// it arrives.
	Send(lane Lane, to identity.Node, frame []byte) error

	// Close closes the carrier and ends every waiting Send. After Close has returned, no method of
	// the Receiver is running or called. Later calls of Close do nothing.
	Close() error
}

// Flusher is implemented by a Carrier that buffers frames.
type Flusher interface {
	// Flush returns when all frames sent before have left the process.
	Flush(ctx context.Context) error
}

// Clustered is implemented by a Carrier that carries frames within one cluster only.
type Clustered interface {
	// Cluster returns the name of the cluster. It never changes.
	Cluster() string
}

// Receiver receives the frames of a Carrier. A Transport is one.
type Receiver interface {
	// Receive processes a frame that arrived on a lane. from is the name of the sending node. The
	// carrier authenticates this name: the sender cannot choose it. The frame belongs to the
	// receiver. Receive does not block. Calls for frames of one sender on one lane are sequential
	// and in order.
	Receive(lane Lane, from string, frame []byte)

	// Connection reports the state of the connection. The error is nil if the carrier is connected.
	// Otherwise the error is the reason for the disconnection. A carrier counts as connected when
	// it starts. Connection does not block.
	Connection(err error)
}

// AdminCarrier is implemented by a Carrier through which operators can send requests to its node.
// Operators are people and their tools.
type AdminCarrier interface {
	// ServeNamedAdmin begins to receive requests that are addressed to the node by its name. It is
	// called at most once, after Start and before ServeAdmin. handle is used as in ServeAdmin.
	ServeNamedAdmin(handle func(AdminRequest)) error
	// ServeAdmin begins to receive requests that are addressed to the node by its name or to any
	// node of the cluster. It is called at most once, after Start. handle does not block, and is
	// not called after Close has returned. It replaces the argument of ServeNamedAdmin.
	ServeAdmin(handle func(AdminRequest)) error
}

// AdminRight is the right that a request of an operator uses.
type AdminRight uint8

const (
	// AdminRead is the right to query nodes.
	AdminRead AdminRight = iota
	// AdminAct is the right to change the state of nodes, for example to let a member leave.
	AdminAct

	adminRights = 2
)

// String returns "read" or "act".
func (r AdminRight) String() string {
	if r == AdminRead {
		return "read"
	}
	return "act"
}

// AdminRequest is a request of an operator.
type AdminRequest struct {
	// Operator is the name of the operator, as proved by the carrier.
	Operator string
	// Service is the service to which the request is addressed. The carrier proves that the
	// operator has the right to it.
	Service string
	// Right is the right that the request uses. The carrier proves that the operator has it.
	Right AdminRight
	// Payload belongs to the handler.
	Payload []byte
	// Reply sends the answer. Call it once, from any goroutine. The error is nil or matches
	// ErrNoHandler, ErrBackpressure, ErrTooLarge, ErrHandlerFailed or ErrClosed; the operator's
	// error matches the same one. An answer has at most Carrier.MaxFrame bytes. It may be lost.
	Reply func(answer []byte, err error)
}

// AdminClient sends requests to nodes for an operator. Its methods are safe for concurrent use.
type AdminClient interface {
	// Ask sends a request for a service that uses a right to the named node, or to any available
	// node if the name is empty, and waits for the answer or the end of ctx. If the name is empty
	// and the first node does not answer, a second node may receive the request too. Such a request
	// must be repeatable. The error matches ErrNoNode if there is no such node, ErrDenied if the
	// operator does not have the right to the service, ErrTooLarge if the request has more than
	// MaxAdminRequest bytes, or is the node's error: see AdminRequest.
	Ask(ctx context.Context, service string, right AdminRight, node string, request []byte) ([]byte, error)
	// Close ends the client.
	Close() error
}
