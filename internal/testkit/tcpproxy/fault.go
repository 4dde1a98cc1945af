// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package tcpproxy

import "fmt"

// Direction is where bytes go.
type Direction int

const (
	// ToServer is from the client to the server.
	ToServer Direction = iota
	// ToClient is from the server to the client.
	ToClient

	directions = 2
)

// String returns "to server" or "to client".
func (d Direction) String() string {
	if d == ToServer {
		return "to server"
	}
	return "to client"
}

func (d Direction) opposite() Direction { return 1 - d }

// Action is what happens to a connection.
type Action int

const (
	// Cut ends it for both sides as if the other one had closed it (FIN). What the
	// proxy still holds is lost.
	Cut Action = iota
	// Reset ends it for both sides with an error (RST). What the proxy still
	// holds is lost.
	Reset
	// Stall holds back what comes, until the fault is released.
	Stall
	// Drop swallows what comes from here on; the connection stays.
	Drop
)

// String returns the name of the action in lower case.
func (a Action) String() string {
	switch a {
	case Cut:
		return "cut"
	case Reset:
		return "reset"
	case Stall:
		return "stall"
	case Drop:
		return "drop"
	}
	return fmt.Sprintf("Action(%d)", int(a))
}

// Fault is something that happens once, to one connection.
type Fault struct {
	// Direction is the one in which bytes are counted, and which stalls or
	// drops.
	Direction Direction
	// After is how many bytes pass, of all connections together and counted from
	// the arming, before the fault strikes the connection that carried the last of
	// them. 0 strikes in place of the next byte.
	After int64
	// Action is what happens.
	Action Action
	// Both lets the other direction stall or drop too.
	Both bool
}

// String describes the fault in a line.
func (f Fault) String() string {
	both := ""
	if f.Both {
		both = " both ways"
	}
	return fmt.Sprintf("%v%s after %d bytes %v", f.Action, both, f.After, f.Direction)
}

// Armed is a fault that may strike. Its methods are safe for concurrent use.
type Armed struct {
	fault  Fault
	proxy  *Proxy
	struck chan struct{}

	// The proxy's mutex guards the rest.

	left int64 // bytes that may still pass
	link *link // the connection that was struck

	released bool
}

// Struck returns a channel that is closed when the fault has struck.
func (a *Armed) Struck() <-chan struct{} { return a.struck }

// Release ends a stall or a drop: what was held back goes on, and what comes
// after it. A fault that has not struck is disarmed. A second Release does nothing.
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
