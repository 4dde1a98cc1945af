// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package register

import (
	"context"
	"errors"

	"github.com/refold-io/refold/ddata/crdt"
)

var (
	// ErrFenced says that there is a higher term.
	ErrFenced = errors.New("sharding: fenced: another one has taken over")
	// ErrConflict says that a change was refused, since something else is stored than it is based on.
	ErrConflict = errors.New("sharding: conflict: something else is stored")
	// ErrInvalid is matched by the errors about arguments that can't be.
	ErrInvalid = errors.New("sharding: invalid argument")
)

// Data is the replicated data. Each read and each change is of a majority of the nodes, the oldest ones first, and is tried until
// there is one or the context ends. A key that is not there is empty.
type Data interface {
	// Self is the node that changes.
	Self() *crdt.Self
	// ReadClaims reads the claims of terms.
	ReadClaims(ctx context.Context) (crdt.ORSet[string], error)
	// ChangeClaims changes them. It may call modify again with what that has returned.
	ChangeClaims(ctx context.Context, modify func(crdt.ORSet[string]) (crdt.ORSet[string], error)) error
	// ReadState reads the state. More asks for ReadPlus nodes more than a majority, repair for as many nodes that have what is
	// returned.
	ReadState(ctx context.Context, more, repair bool) (crdt.LWWRegister[[]byte], error)
	// ChangeState changes it. It may call modify again with what that has returned.
	ChangeState(ctx context.Context, modify func(crdt.LWWRegister[[]byte]) (crdt.LWWRegister[[]byte], error)) error
}

// ReadPlus is how many nodes more than a majority are read before a term begins. That is rare, comes after
// nodes have left, and finds what was written while there were more of them, or others.
const ReadPlus = 5
