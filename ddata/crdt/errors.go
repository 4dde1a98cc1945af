// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "errors"

var (
	// ErrType matches errors about values of different types: in a merge, when a delta is applied,
	// or when a value is read as another Go type than it was written as.
	ErrType = errors.New("crdt: type mismatch")
	// ErrUndefined matches errors about a user's type that is not in the Types in use.
	ErrUndefined = errors.New("crdt: type is not defined")
	// ErrElement matches errors about elements, keys and register values that cannot be encoded, or
	// cannot be decoded to the requested Go type.
	ErrElement = errors.New("crdt: invalid element")
	// ErrMalformed matches errors about bytes that are not a value or delta in canonical form.
	ErrMalformed = errors.New("crdt: malformed data")
	// ErrLimit matches errors about values, elements and numbers that exceed a limit.
	ErrLimit = errors.New("crdt: limit exceeded")
	// ErrClock is returned when a register already has the highest possible timestamp, so that no
	// later write is possible.
	ErrClock = errors.New("crdt: timestamp overflow")
	// ErrReplace is returned when a set is put under a map key that already holds a set: the
	// history of the old set would be lost. Use Update, or an ORMultiMap.
	ErrReplace = errors.New("crdt: cannot replace a set in a map")
)

// Limits of what is encoded and decoded.
const (
	// MaxSize is the maximum size of an encoded value or delta in bytes.
	MaxSize = 16 << 20
	// MaxElement is the maximum size of an encoded element, key or register value in bytes.
	MaxElement = 1 << 20
	// MaxNodes is the maximum number of nodes in one value.
	MaxNodes = 10_000

	maxDepth = 8   // nesting of types
	maxCount = 128 // bytes of the count of one node
	maxName  = 64  // bytes of the name of a user's type
)
