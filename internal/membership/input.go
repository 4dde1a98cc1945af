// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"github.com/refold-io/refold/identity"
)

// Input is something that happened to a node.
type Input interface{ input() }

// Received is a message that came in. The carrier has made sure that From.Name
// is who sent it.
type Received struct {
	From identity.Node
	// To is what the message was sent to: this incarnation, or its name, with UID 0.
	To identity.Node
	// Arrived is when, on the same clock as now. 0 is now.
	Arrived time.Duration
	// Data is the encoded message. The machine keeps it; it must not be modified.
	Data []byte
}

// JoinSeeds asks to join a cluster through its seeds, which stand in the same
// order on all nodes. The first of them, if it finds no other, joins itself.
type JoinSeeds struct{ Seeds []string }

// JoinNode asks to join the cluster of a node. That may be the node itself.
type JoinNode struct{ Name string }

// Leave asks that a member leave. Its UID may be 0 for whoever has the name.
type Leave struct{ Node identity.Node }

// DownNode says that a member is dead. Its UID may be 0 for whoever has the name.
type DownNode struct{ Node identity.Node }

// PrepareForShutdown announces that the whole cluster is going to stop.
type PrepareForShutdown struct{}

// ExitingDone says that all that had to be done before this node goes is done.
type ExitingDone struct{}

// Quarantine says that nothing can be delivered to a node any more.
type Quarantine struct{ Node identity.Node }

// LinkLost says that the connection to the broker is gone.
type LinkLost struct{}

// LinkRestored says that there is a connection to the broker again.
type LinkRestored struct{}

// SetVersion supplies the version that was promised.
type SetVersion struct{ Version Version }

// Shutdown ends the membership of this node here, without telling anybody.
type Shutdown struct{}

func (Received) input()           {}
func (JoinSeeds) input()          {}
func (JoinNode) input()           {}
func (Leave) input()              {}
func (DownNode) input()           {}
func (PrepareForShutdown) input() {}
func (ExitingDone) input()        {}
func (Quarantine) input()         {}
func (LinkLost) input()           {}
func (LinkRestored) input()       {}
func (SetVersion) input()         {}
func (Shutdown) input()           {}
