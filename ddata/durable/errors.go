// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durable

import "errors"

var (
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("durable: closed")
	// ErrInvalid is matched by the errors about arguments that can't be.
	ErrInvalid = errors.New("durable: invalid argument")
	// ErrInUse says that the store is open already, here or in another process.
	ErrInUse = errors.New("durable: in use")
	// ErrVersion says that the data was written by another version of Refold, in
	// a format that this one can't read.
	ErrVersion = errors.New("durable: written in another format")
	// ErrForeign says that there is something else in the place of the data.
	ErrForeign = errors.New("durable: not durable data of Refold")
	// ErrCorrupt says that the data is damaged.
	ErrCorrupt = errors.New("durable: corrupt")
)
