// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid matches errors about invalid arguments.
	ErrInvalid = errors.New("transport: invalid argument")
	// ErrBackpressure reports that a queue is full and the message was not accepted.
	ErrBackpressure = errors.New("transport: send queue full")
	// ErrTooLarge reports a message beyond the size limit.
	ErrTooLarge = errors.New("transport: message too large")
	// ErrQuarantined reports that the peer is quarantined. Traffic with a quarantined incarnation
	// never resumes.
	ErrQuarantined = errors.New("transport: peer is quarantined")
	// ErrTooManyPeers reports that the number of peers is at its limit.
	ErrTooManyPeers = errors.New("transport: too many peers")
	// ErrMalformed matches errors about frames that cannot be decoded.
	ErrMalformed = errors.New("transport: malformed frame")
	// ErrVersion reports a frame of an unknown version. It matches ErrMalformed.
	ErrVersion = fmt.Errorf("%w: unknown version", ErrMalformed)
)
