// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import "context"

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
