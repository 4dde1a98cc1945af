// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
)

// Node says how a child process joins the cluster.
type Node struct {
	// Name is the name of the node, Cluster that of the cluster.
	Name, Cluster string
	Seeds         []string
	Access        nats.Access
	Downing       downing.Settings
	// AcceptablePause is that of the settings of the membership. Defaults to theirs.
	AcceptablePause time.Duration `json:",omitempty"`
	// Leases is where leases are kept. Without URLs there are none.
	Leases nats.Access
	// Singleton says that the node takes part in running a singleton, which does nothing.
	Singleton bool
	// Data says that the node holds replicated data. Defaults to none.
	Data *Data `json:",omitempty"`
}

// Report is what a child says. Exactly one of its parts is set, besides Node and At.
type Report struct {
	Node identity.Node
	// At is the wall time, which all processes on one machine share.
	At time.Time
	// View is what the node knows of the cluster, when it has changed.
	View *View `json:",omitempty"`
	// Hosts says whether the instance of the singleton runs here, when that has changed.
	Hosts *bool `json:",omitempty"`
	// Answer is that to a Request.
	Answer *Answer `json:",omitempty"`
	// CPU is how much processor time the process has taken so far.
	CPU *time.Duration `json:",omitempty"`
	// Ended says why the node is no member any more. It is the last report.
	Ended string `json:",omitempty"`
	// Exit is the parent's own report that the process is gone, and how it went.
	Exit string `json:",omitempty"`
}

// View is what a node knows of its cluster.
type View struct {
	Members []Member
	Leader  identity.Node
	// Connected says that the node hears itself, Suspended that it must not host anything.
	Connected, Suspended bool
}

// Member is a member as a node sees it.
type Member struct {
	Node        identity.Node
	Status      string
	Unreachable bool `json:",omitempty"`
}

// viewOf returns what a report says of a state.
func viewOf(s *cluster.State) *View {
	v := &View{Leader: s.Leader, Connected: s.Connected, Suspended: s.Suspended}
	for _, m := range s.Members {
		v.Members = append(v.Members, Member{Node: m.Node, Status: m.Status.String(), Unreachable: !s.Reachable(m.Node)})
	}
	return v
}

// Up returns how many members are up and reachable.
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
