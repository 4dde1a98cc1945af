// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
)

// Node configures a child.
type Node struct {
	// Name is the name of the node, and Cluster the name of the cluster.
	Name, Cluster string
	Seeds         []string
	Access        nats.Access
	Downing       downing.Settings
	// AcceptablePause is the setting of the failure detector. Defaults to the default of package
	// cluster.
	AcceptablePause time.Duration `json:",omitempty"`
	// Extra is passed to the Extension.
	Extra json.RawMessage `json:",omitempty"`
}

// Report is a message from a child. One other field is set in addition to Node and At.
type Report struct {
	Node identity.Node
	// At is the wall-clock time, which is the same for all processes on a machine.
	At time.Time
	// View is the new view of the cluster, after a change.
	View *View `json:",omitempty"`
	// Extra is a value from the Extension.
	Extra json.RawMessage `json:",omitempty"`
	// Ended is the reason why the node is no longer a member. This report is the last one that the
	// child sends.
	Ended string `json:",omitempty"`
	// Exit is the exit status of the process. The parent creates this report.
	Exit string `json:",omitempty"`
}

// View is the view of the cluster on one node.
type View struct {
	Members []Member
	Leader  identity.Node
	// Connected reports that the node receives its own messages. A Suspended node must not host
	// anything.
	Connected, Suspended bool
}

// Member is a member, as seen by a node.
type Member struct {
	Node        identity.Node
	Status      string
	Unreachable bool `json:",omitempty"`
}

// viewOf converts a state to a View.
func viewOf(s *cluster.State) *View {
	v := &View{Leader: s.Leader, Connected: s.Connected, Suspended: s.Suspended}
	for _, m := range s.Members {
		v.Members = append(v.Members, Member{Node: m.Node, Status: m.Status.String(), Unreachable: !s.Reachable(m.Node)})
	}
	return v
}

// Up returns the number of reachable members with the status Up.
func (v *View) Up() (n int) {
	for _, m := range v.Members {
		if m.Status == cluster.Up.String() && !m.Unreachable {
			n++
		}
	}
	return n
}

// Has reports whether an incarnation is a member.
func (v *View) Has(node identity.Node) bool {
	for _, m := range v.Members {
		if m.Node == node {
			return true
		}
	}
	return false
}
