// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"fmt"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/shardcore"
)

// Why a command did not reach its entity. Each of these says that surely nothing was done: eventsourcing.NotDone is true for
// them, on whatever node the command was refused.
var (
	// ErrHandOff says that the command was waiting for its entity when the shard moved and was ended by force, or failed.
	ErrHandOff error = &notDone{"the shard moved before the command was handled", eventsourcing.ErrStopped}
	// ErrNotHome says that the command met two nodes that are not the home of its shard. It is so while a shard is lost
	// and found.
	ErrNotHome error = &notDone{"the shard is not where it was looked for", eventsourcing.ErrStopped}
	// ErrBuffersFull says that too many commands wait.
	ErrBuffersFull error = &notDone{"too many commands wait", eventsourcing.ErrStashFull}
	// ErrStopped says that the region has stopped, or that its node hosts nothing at the moment.
	ErrStopped error = &notDone{"the region has stopped", eventsourcing.ErrStopped}
	// ErrNotSent says that the command could not be sent to the node that has its shard.
	ErrNotSent error = &notDone{"the command could not be sent", eventsourcing.ErrStopped}
	// ErrAbandoned says, to Observer.Dropped only, that the caller had left before the command could leave the region.
	ErrAbandoned error = &notDone{"the caller of the command has left", eventsourcing.ErrStopped}
)

// notDone is one of them. It matches what an entity of the own node would have answered, and says nothing of it: there may be none.
type notDone struct {
	text string
	is   error
}

func (e *notDone) Error() string { return "sharding: " + e.text }

func (e *notDone) Unwrap() error { return e.is }

// refusal returns the error for a reason to refuse a command.
func refusal(why shardcore.Reason) error {
	switch why {
	case shardcore.BufferFull:
		return ErrBuffersFull
	case shardcore.NotHome:
		return ErrNotHome
	case shardcore.HandedOff, shardcore.ShardFailed:
		return ErrHandOff
	case shardcore.NoShard:
		return fmt.Errorf("%w: there is no such shard: the nodes do not agree on how many there are", eventsourcing.ErrInvalid)
	case shardcore.Abandoned:
		return ErrAbandoned
	case shardcore.Stopped:
	}
	return ErrStopped
}
