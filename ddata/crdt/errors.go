// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "errors"

var (
	// ErrType is matched by the errors about values of two types where one is
	// needed: what is merged, what a delta is applied to, what is read with
	// another Go type than it was written with.
	ErrType = errors.New("crdt: another type")
	// ErrUndefined is matched by the errors about a type of one's own that is
	// not in the Types at hand.
	ErrUndefined = errors.New("crdt: type is not defined")
	// ErrElement is matched by the errors about elements, keys and register
	// values that can't be encoded, or not be decoded as the Go type that is
	// asked for.
	ErrElement = errors.New("crdt: element")
	// ErrMalformed is matched by the errors about bytes that are no value or no
	// delta, or not in the one form that a value has.
	ErrMalformed = errors.New("crdt: malformed data")
	// ErrLimit is matched by the errors about what is too large.
	ErrLimit = errors.New("crdt: limit exceeded")
	// ErrClock says that a register's timestamp is the last one there is, so that
	// nothing can be written after it.
	ErrClock = errors.New("crdt: the timestamp has reached its end")
	// ErrReplace says that a map holds a set under the key already, whose history
	// would be lost: use Update, or an ORMultiMap.
	ErrReplace = errors.New("crdt: a set in a map can't be replaced")
)

// Limits of what is encoded and decoded.
const (
	// MaxSize is the largest number of bytes of an encoded value or delta.
	MaxSize = 16 << 20
	// MaxElement is the largest number of bytes of an encoded element, key or
	// register value.
	MaxElement = 1 << 20
	// MaxNodes is the largest number of nodes that one value knows.
	MaxNodes = 10_000

	maxDepth = 8   // of types in types
	maxCount = 128 // bytes of one node's count
	maxName  = 64  // bytes of the name of a user's type
)
