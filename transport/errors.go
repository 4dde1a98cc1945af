// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"

	"github.com/refold-io/refold/internal/link"
)

var (
	// ErrInvalid matches errors about invalid arguments.
	ErrInvalid = link.ErrInvalid
	// ErrBackpressure reports that a message was not accepted because the queue of the peer on the
	// lane is full, or too many requests are open.
	ErrBackpressure = link.ErrBackpressure
	// ErrTooLarge reports a message beyond the size limit.
	ErrTooLarge = link.ErrTooLarge
	// ErrQuarantined reports that the peer is quarantined. Traffic with a quarantined incarnation
	// never resumes.
	ErrQuarantined = link.ErrQuarantined
	// ErrTooManyPeers reports that the number of peers is at its limit.
	ErrTooManyPeers = link.ErrTooManyPeers

	// ErrClosed reports that the transport was closed.
	ErrClosed = errors.New("transport: closed")
	// ErrDisconnected reports that the carrier is not connected.
	ErrDisconnected = errors.New("transport: disconnected")
	// ErrNoHandler reports that the peer has no handler for a request.
	ErrNoHandler = errors.New("transport: no handler for this kind of request")
	// ErrHandlerFailed reports that the peer's handler panicked, or that its reply could not be
	// sent.
	ErrHandlerFailed = errors.New("transport: request handler failed")
	// ErrDenied reports that an operator may not send a request.
	ErrDenied = errors.New("transport: the operator is not permitted to send this request")
	// ErrNoNode reports that no node answers an operator.
	ErrNoNode = errors.New("transport: no node answers")
	// ErrForgotten reports that the peer was forgotten while a request was open.
	ErrForgotten = errors.New("transport: peer was forgotten")
)
