// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Input is what a machine is told.
type Input interface{ input() }

type (
	// Members says who is in the cluster. All is sorted by node and holds the
	// node itself once it is a member; Unreachable are those that somebody can't
	// reach.
	Members struct {
		All         []membership.Member
		Unreachable []identity.Node
	}
	// Received is a message. From is who the transport says that it is from, and it
	// was sent to this incarnation. Data must not be modified afterwards.
	Received struct {
		From identity.Node
		Data []byte
	}
	// Get reads a key.
	Get struct {
		Request
		// RepairPeers makes sure that as many replicas as were read hold what was
		// read, before it is answered.
		RepairPeers bool
	}
	// Update changes a key. Modify is called at most once, with the current value, or
	// the zero Value where there is none. It must not keep time or wait; an error
	// or a panic changes nothing. What it returns is merged into the current value.
	Update struct {
		Request
		Modify func(current crdt.Value) (crdt.Value, error)
	}
	// Delete deletes a key for ever.
	Delete struct{ Request }
	// Subscribe begins to report changes of a key, or of all keys with a prefix if
	// Prefix is set. The number is the shell's choice, and not in use.
	Subscribe struct {
		Nr     uint64
		Key    string
		Prefix bool
	}
	// Unsubscribe ends that.
	Unsubscribe struct{ Nr uint64 }
	// Flush reports changes now, and sends what the others don't have yet.
	Flush struct{}
	// Touch says that keys were read past the machine.
	Touch struct{ Keys []string }
	// Load is a record from the disk. All of them come before Loaded, and nothing but
	// Members must come before that.
	Load struct {
		Key  string
		Data []byte
	}
	// Loaded says that all records were loaded. Machines with durable keys do nothing
	// before.
	Loaded struct{}
	// Stored says what became of some Store.
	Stored struct {
		Nrs []uint64
		// Err is nil if they are on disk.
		Err error
	}
	// SetClock says what time it is on the wall: when the clock was set, and now
	// and then.
	SetClock struct{ Time time.Time }
	// Stop ends the machine: open requests are answered.
	Stop struct{}
)

// Request is what all requests have in common.
type Request struct {
	// ID is the shell's choice, and not in use.
	ID  uint64
	Key string
	// Level is how many replicas take part.
	Level Level
	// Timeout is after which time it is given up. Defaults to Config.Timeout.
	Timeout time.Duration
	// PreferOldest asks the oldest nodes first, not any.
	PreferOldest bool
}

func (Members) input()     {}
func (Received) input()    {}
func (Get) input()         {}
func (Update) input()      {}
func (Delete) input()      {}
func (Subscribe) input()   {}
func (Unsubscribe) input() {}
func (Flush) input()       {}
func (Touch) input()       {}
func (Load) input()        {}
func (Loaded) input()      {}
func (Stored) input()      {}
func (SetClock) input()    {}
func (Stop) input()        {}
