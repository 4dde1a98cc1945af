// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
)

// Package transport documents the errors that it returns.
var (
	ErrInvalid      = errors.New("transport: invalid argument")
	ErrBackpressure = errors.New("transport: send queue full")
	ErrTooLarge     = errors.New("transport: message too large")
	ErrQuarantined  = errors.New("transport: peer is quarantined")
	ErrTooManyPeers = errors.New("transport: too many peers")

	// ErrMalformed matches errors about frames that cannot be decoded.
	ErrMalformed = errors.New("transport: malformed frame")
	// ErrVersion reports a frame of an unknown version. It matches ErrMalformed.
	ErrVersion = fmt.Errorf("%w: unknown version", ErrMalformed)
)
