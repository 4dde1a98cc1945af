// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/plugins/nats"
)

// What a parent can order.
const (
	orderJoin   = "join"   // the cluster, and start the replicator
	orderAwait  = "await"  // as many replicas as Count
	orderFill   = "fill"   // make Count keys from From on
	orderUpdate = "update" // keys, for a time
	orderAnswer = "answer" // raw requests of the bare client
	orderRaw    = "raw"    // requests that carry as much, for a time
	orderStats  = "stats"  // the figures
	orderSync   = "sync"   // wait until all is held that has the Digest
	orderSynced = "synced" // wait until all has come that others had
	orderCheck  = "check"  // what the keys hold
	orderDecode = "decode" // values that were encoded before, on one core
	orderLeave  = "leave"  // the cluster
)

// dataOrder is what a parent orders a process that has a replicator to do: one thing at a time.
type dataOrder struct {
	Do string
	// Name, Seeds and Access are for joining.
	Name   string       `json:",omitempty"`
	Seeds  []string     `json:",omitempty"`
	Access *nats.Access `json:",omitempty"`
	Set    string       `json:",omitempty"` // of keys
	Kind   string       `json:",omitempty"` // kindCounter or kindSet
	From   int          `json:",omitempty"`
	Count  int          `json:",omitempty"` // of keys, of replicas, or of peers that a raw request goes to
	Size   int          `json:",omitempty"` // of each set; of a raw request, in bytes
	Answer int          `json:",omitempty"` // to a raw request, in bytes
	Way    string       `json:",omitempty"` // of raw requests
	// Callers is how many update at a time; by default dataCallers.
	Callers int           `json:",omitempty"`
	Length  time.Duration `json:",omitempty"`
	Pause   time.Duration `json:",omitempty"` // of each caller after each update
	// Digest is what others hold.
	Digest replication.Digest
}

// The kinds of values.
const (
	kindCounter = "GCounter"
	kindSet     = "ORSet"
)

// dataAnswer says what has come of an order.
type dataAnswer struct {
	Node identity.Node `json:",omitzero"`
	// At is when the node was up, or when it had all: the wall time, which all processes on a machine share.
	At      time.Time     `json:",omitzero"`
	Ops     int           `json:",omitempty"`
	Took    time.Duration `json:",omitempty"`
	Bytes   int           `json:",omitempty"`
	Sum     uint64        `json:",omitempty"`
	Samples []dataSample  `json:",omitempty"`
	Digest  replication.Digest
	Synced  bool                  `json:",omitempty"`
	Count   *replication.Counters `json:",omitempty"`
}

// dataSample is how long one update took, and when it ended.
type dataSample struct {
	At   time.Time
	Took time.Duration
}
