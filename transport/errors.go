// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"

	"github.com/refold-io/refold/internal/link"
)

var (
	// ErrInvalid is matched by errors about arguments that no transport accepts.
	ErrInvalid = link.ErrInvalid
	// ErrBackpressure says that a message was not taken because too much waits
	// for the same peer on the lane, or too many requests are open.
	ErrBackpressure = link.ErrBackpressure
	// ErrTooLarge says that a message is larger than allowed.
	ErrTooLarge = link.ErrTooLarge
	// ErrQuarantined says that there is no traffic with an incarnation, ever
	// again.
	ErrQuarantined = link.ErrQuarantined
	// ErrTooManyPeers says that there are links with as many incarnations as
	// there may be.
	ErrTooManyPeers = link.ErrTooManyPeers

	// ErrClosed says that the transport was closed.
	ErrClosed = errors.New("transport: closed")
	// ErrDisconnected says that the carrier is not connected.
	ErrDisconnected = errors.New("transport: disconnected")
	// ErrNoHandler says that the peer has no handler for a request.
	ErrNoHandler = errors.New("transport: the peer has no handler for this kind of request")
	// ErrHandlerFailed says that the peer's handler panicked over a request, or
	// that its reply could not be sent.
	ErrHandlerFailed = errors.New("transport: the peer's handler failed")
	// ErrNobody says that there is no node to answer an operator.
	ErrNobody = errors.New("transport: nobody answers")
	// ErrForgotten says that the peer was forgotten while a request was open.
	ErrForgotten = errors.New("transport: peer was forgotten")
)
