// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"fmt"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/shardcore"
)

// Errors about commands that were not delivered. Nothing was done: eventsourcing.NotDone is true
// for each of them, whichever node refused the command.
var (
	// ErrHandOff reports that the shard of the entity was moved by force, or failed, while the
	// command waited.
	ErrHandOff error = &notDone{"the shard moved before the command was handled", eventsourcing.ErrStopped}
	// ErrNotHome reports that the command reached two nodes that do not host the shard. This is
	// possible while a lost shard is allocated again.
	ErrNotHome error = &notDone{"the shard has no home at present", eventsourcing.ErrStopped}
	// ErrBuffersFull reports that too many commands wait: Tuning.BufferSize commands of this node, or
	// more bytes than the sender's share of transport.Config.MemoryBudget.
	ErrBuffersFull error = &notDone{"too many commands wait", eventsourcing.ErrStashFull}
	// ErrStopped reports that the region has stopped, or that its node is suspended and hosts
	// nothing.
	ErrStopped error = &notDone{"the region has stopped", eventsourcing.ErrStopped}
	// ErrNotSent reports that the command could not be sent to the home of its shard.
	ErrNotSent error = &notDone{"the command could not be sent", eventsourcing.ErrStopped}
	// ErrAbandoned is reported to Observer.Dropped only: the caller stopped waiting before the
	// command left the region.
	ErrAbandoned error = &notDone{"the caller no longer waits", eventsourcing.ErrStopped}
)

// notDone is an error about a command that was not delivered. It unwraps to the error that a local
// entity would return.
type notDone struct {
	text string
	is   error
}

func (e *notDone) Error() string { return "sharding: " + e.text }

func (e *notDone) Unwrap() error { return e.is }

func refusal(why shardcore.Reason) error {
	switch why {
	case shardcore.BufferFull:
		return ErrBuffersFull
	case shardcore.NotHome:
		return ErrNotHome
	case shardcore.HandedOff, shardcore.ShardFailed:
		return ErrHandOff
	case shardcore.NoShard:
		return fmt.Errorf("%w: no such shard: the nodes have different numbers of shards", eventsourcing.ErrInvalid)
	case shardcore.Abandoned:
		return ErrAbandoned
	case shardcore.Stopped:
	}
	return ErrStopped
}
