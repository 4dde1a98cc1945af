// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
)

// What a parent can order a process with a region to do.
const (
	shardJoin  = "join"  // the cluster, and start the region
	shardAwait = "await" // as many regions as Count
	shardWhere = "where" // ask the entities up to Count where they are
	shardEcho  = "echo"  // have callers ask entities for a time, as Way says
	shardLeave = "leave" // the cluster
)

// Whom the callers of shardEcho ask.
const (
	wayHere   = "here"   // entities on the same node, through the region
	wayThere  = "there"  // entities on other nodes, through the region
	wayHost   = "host"   // entities of a local host
	wayRaw    = "raw"    // a subscription of the bare client of NATS, in the process that was told to serve it
	wayAnswer = "answer" // serves it
)

// shardSetup says what a node is like.
type shardSetup struct {
	// Seeds and Access are those of the cluster.
	Seeds  []string
	Access nats.Access
	// Shards is how many there are, Regions how many nodes host them at least.
	Shards, Regions int
}

// shardOrder is what a parent orders a process that has a region to do: one thing at a time.
type shardOrder struct {
	Do    string
	Setup *shardSetup `json:",omitempty"` // of shardJoin
	Name  string      `json:",omitempty"` // of the node
	Way   string      `json:",omitempty"`
	// Callers, Count and Length are of whom, of what, and for how long.
	Callers int           `json:",omitempty"`
	Count   int           `json:",omitempty"`
	Length  time.Duration `json:",omitempty"`
}

// shardAnswer says what has come of an order.
type shardAnswer struct {
	Err  string        `json:",omitempty"`
	Node identity.Node `json:",omitzero"`
	// At is when it was so: the wall time, which all processes on a machine share.
	At   time.Time     `json:",omitzero"`
	Ops  int           `json:",omitempty"`
	Took time.Duration `json:",omitempty"`
}

func (a *shardAnswer) rate() float64 { return float64(a.Ops) / max(1e-9, a.Took.Seconds()) }
