// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package tcpproxy

import "fmt"

// Direction is a direction of bytes.
type Direction int

const (
	// ToServer is from the client to the server.
	ToServer Direction = iota
	// ToClient is from the server to the client.
	ToClient

	directions = 2
)

// String returns "to server" or "to client".
func (d Direction) String() string { return [...]string{"to server", "to client"}[d] }

func (d Direction) opposite() Direction { return 1 - d }

// Action is the effect of a fault on a connection.
type Action int

const (
	// Cut ends the connection for both sides as if the peer had closed it (FIN). Bytes that the
	// proxy still holds are lost.
	Cut Action = iota
	// Reset ends the connection for both sides with an error (RST). Bytes that the proxy still
	// holds are lost.
	Reset
	// Stall delays all bytes until the fault is released.
	Stall
	// Drop discards all following bytes; the connection stays open.
	Drop
)

// String returns the name of the action in lower case.
func (a Action) String() string { return [...]string{"cut", "reset", "stall", "drop"}[a] }

// Fault is a single fault of one connection.
type Fault struct {
	// Direction is the direction in which bytes are counted, and in which Stall and Drop act.
	Direction Direction
	// After is the number of bytes that pass before the fault, counted over all connections since
	// Arm. The fault affects the connection that carried the last of these bytes. If After is 0,
	// the fault affects the next byte.
	After int64
	// Action is the effect.
	Action Action
	// Both extends Stall or Drop to the other direction.
	Both bool
}

// String describes the fault in one line.
func (f Fault) String() string {
	both := ""
	if f.Both {
		both = " both ways"
	}
	return fmt.Sprintf("%v%s after %d bytes %v", f.Action, both, f.After, f.Direction)
}

// Armed is a fault that may occur. Its methods are safe for concurrent use.
type Armed struct {
	fault  Fault
	proxy  *Proxy
	struck chan struct{}

	// The proxy's mutex guards the following fields.

	left int64 // bytes that may still pass
	link *link // the affected connection

	released bool
}

// Struck returns a channel that is closed when the fault has occurred.
func (a *Armed) Struck() <-chan struct{} { return a.struck }

// Release ends a stall or a drop: delayed bytes and all following bytes pass. It disarms a fault
// that has not occurred. A second Release has no effect.
func (a *Armed) Release() {
	p := a.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	a.released = true
	if p.armed == a {
		p.armed = nil
	}
	if a.link != nil {
		for d := range a.link.flows {
			a.link.flows[d].mode = pass
		}
		p.changed.Broadcast()
	}
}
