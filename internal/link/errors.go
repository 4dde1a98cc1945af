// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import "errors"

var (
	// ErrInvalid is matched by errors about arguments that no machine accepts.
	ErrInvalid = errors.New("transport: invalid argument")
	// ErrBackpressure says that a message was not taken because too much waits
	// for the same peer already.
	ErrBackpressure = errors.New("transport: too much is waiting for the peer")
	// ErrTooLarge says that a message is larger than allowed.
	ErrTooLarge = errors.New("transport: message too large")
	// ErrQuarantined says that there is no traffic with an incarnation, ever
	// again.
	ErrQuarantined = errors.New("transport: peer is quarantined")
	// ErrTooManyPeers says that there are links with as many incarnations as
	// there may be.
	ErrTooManyPeers = errors.New("transport: too many peers")
	// ErrMalformed is matched by errors about frames that can't be decoded.
	ErrMalformed = errors.New("transport: malformed frame")
	// ErrVersion says that a frame is of a version that is not known. It matches
	// ErrMalformed.
	ErrVersion = versionError{}
)

type versionError struct{}

func (versionError) Error() string { return "transport: frame of an unknown version" }

// Is reports whether target is ErrMalformed.
func (versionError) Is(target error) bool { return target == ErrMalformed }
