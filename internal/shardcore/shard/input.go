// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

// Input is what a shard is told.
type Input interface{ input() }

// Loaded answers Load with the entities that are remembered. There must be exactly one answer, this or
// LoadFailed.
type Loaded struct{ Entities []string }

// LoadFailed answers Load.
type LoadFailed struct{}

// Deliver is a message for an entity.
type Deliver struct {
	Entity string
	Token  uint64
}

// Started says that an entity is ready, and another one may be started in its place.
type Started struct {
	Entity      string
	Incarnation uint64
}

// Ended says that nothing of an incarnation runs any more. Each Start is followed by one, at last: also one that failed.
type Ended struct {
	Entity      string
	Incarnation uint64
}

// Passivate is the wish of an entity to be stopped. It loses no message.
type Passivate struct {
	Entity      string
	Incarnation uint64
}

// Busy says that an incarnation goes on that was to stop since nobody needs it.
type Busy struct {
	Entity      string
	Incarnation uint64
}

// Updated answers Update: it is durable.
type Updated struct{ ID uint64 }

// UpdateFailed answers Update. It may have been stored all the same.
type UpdateFailed struct{ ID uint64 }

// HandOff stops the shard. No message comes after it.
type HandOff struct{}

// Abort ends the shard at once: the node has lost it. What waits is refused with Failed.
type Abort struct{}

// Recover starts up to so many remembered entities, if Config.RecoverAsked.
type Recover struct{ Number int }

// Limits changes Config.Entities and Config.Starts, when the region has more or fewer shards.
type Limits struct{ Entities, Starts int }

func (Loaded) input()       {}
func (LoadFailed) input()   {}
func (Deliver) input()      {}
func (Started) input()      {}
func (Ended) input()        {}
func (Passivate) input()    {}
func (Busy) input()         {}
func (Updated) input()      {}
func (UpdateFailed) input() {}
func (HandOff) input()      {}
func (Abort) input()        {}
func (Recover) input()      {}
func (Limits) input()       {}
