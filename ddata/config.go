// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
)

// DefaultName is the name of a replicator that has none.
const DefaultName = "ddata"

// Config says what a replicator holds, and how. All nodes should have the same, but for Opener, Logger and Observer.
type Config struct {
	// Name tells the replicators of a node apart. Those with the same name on different nodes hold the same data. Up to 128 letters,
	// digits and "_-:.". Defaults to DefaultName.
	Name string
	// Roles are those that a node must have, all of them, to hold the data. Other nodes are invisible to it, and can't start it. Defaults to
	// none: all nodes do. Every member with the roles counts in majorities, whether it has started a replicator of this name or not: one
	// that has none never answers.
	Roles []string
	// Types are the data types and the types of elements of the program: crdt.NewTypes(codec.Types(codec.Name[Product]("product"))) lets a Product
	// be an element. Defaults to those of package crdt with elements of basic kinds. All nodes need a type before one of them uses it: the
	// others refuse what they can't read.
	Types *crdt.Types

	// Durable are the keys that are kept on disk: exact ones, and prefixes that end in a star. Defaults to none. They are loaded before Start
	// returns, and a change of one is on disk before it is acknowledged.
	Durable []string
	// Opener opens the store in which they are kept: leveldb.NewDurable of plugins/leveldb is one. Required if there are Durable ones. The
	// replicator closes what it has opened.
	Opener durable.Opener
	// WriteBehind is after which time what has changed is written to disk, if requests need not wait for that. A crash loses up to so
	// much of what this node has acknowledged. Defaults to 0: they wait.
	WriteBehind time.Duration

	// Expire says after which time without use keys are forgotten on all nodes, by key or by prefix that ends in a star. An
	// exact key goes before prefixes, a longer prefix before a shorter one. At least GossipInterval, and the same on all nodes.
	Expire map[string]time.Duration
	// PreferOldest lets all requests ask the oldest nodes first, not any. It is good where a singleton writes.
	PreferOldest bool
	// Timeout is that of requests whose context has no deadline, and how long those wait at most until they begin. Defaults to 5 s.
	Timeout time.Duration

	// GossipInterval is how often all data is compared with another node. Defaults to 2 s.
	GossipInterval time.Duration
	// NotifyInterval is how often subscribers are told of changes. Defaults to 500 ms.
	NotifyInterval time.Duration
	// DeltaInterval is how often changes are sent to the others, but for the first after some quiet, which is sent at once. Defaults to
	// 200 ms.
	DeltaInterval time.Duration
	// PruneInterval is how often it is looked for nodes that have left, so that their history is moved to another one. Defaults to 2
	// minutes; below 0 it is kept for ever.
	PruneInterval time.Duration
	// PruneAfter is how long a node must have been away, while all others could be reached. Defaults to 5 minutes; DurablePruneAfter, for durable
	// keys, to 24 hours: a node that comes back later loses what only its disk had of a node that was pruned meanwhile.
	PruneAfter, DurablePruneAfter time.Duration
	// MarkerTTL is how long it is remembered that a node was pruned: whoever has not heard of that must not come back later with what it
	// has. Defaults to 6 hours; DurableMarkerTTL, for durable keys, to 10 days.
	MarkerTTL, DurableMarkerTTL time.Duration
	// DisableDeltas sends all changes as whole values.
	DisableDeltas bool
	// MaxDeltaOps is from how many changes of one key on its value is sent instead of those. Defaults to 50.
	MaxDeltaOps int
	// MaxEntry is the largest encoded value that an update may make, in bytes: 1 to a little less than what the transport takes, which is
	// 1 MiB at most. Defaults to 512 KiB, or half of what the transport takes if that is less.
	MaxEntry int
	// MaxKeys is how many keys there may be, deleted ones included. Defaults to 10,000,000.
	MaxKeys int
	// MaxRequests is how many requests may be open. Defaults to 65,536.
	MaxRequests int
	// MaxLog is how many changes wait for nodes that can't be told at once. Those nodes get whole values for the rest. Defaults to 10,000.
	MaxLog int

	// Logger gets what happens. A handler that blocks holds up the replicator. Defaults to that of the node, which does not.
	Logger *slog.Logger
	// Observer is told figures. Defaults to none.
	Observer Observer
	// StatsInterval is how often Observer.Stats is called. Defaults to 0: never.
	StatsInterval time.Duration
}

func (c Config) withDefaults(node *cluster.Node) Config {
	c.Name = cmp.Or(c.Name, DefaultName)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.Logger == nil {
		c.Logger = node.Logger()
	}
	return c
}

// validate returns all that is wrong but for what the protocol checks.
func (c *Config) validate(node *cluster.Node) error {
	var errs []error
	has := map[string]bool{}
	for _, role := range node.Roles() {
		has[role] = true
	}
	for _, role := range c.Roles {
		if !has[role] {
			errs = append(errs, fmt.Errorf("Config.Roles has %q, which this node does not", role))
		}
	}
	switch {
	case len(c.Durable) > 0 && c.Opener == nil:
		errs = append(errs, errors.New("Config.Opener is missing: durable keys need it"))
	case len(c.Durable) == 0 && c.Opener != nil:
		errs = append(errs, errors.New("Config.Opener is of no use without Config.Durable"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"WriteBehind", c.WriteBehind}, {"StatsInterval", c.StatsInterval}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %v, it must not be negative", "Config."+d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

// maxEntry returns the largest value that an update may make, where messages have so much room.
func (c *Config) maxEntry(room int) int { return cmp.Or(c.MaxEntry, min(512<<10, room/2)) }

// room is how much of a message is left for what is replicated.
func room(maxPayload int) int { return min(maxPayload-replica.Overhead, replication.MaxMessage) }

// machine returns the machine of a replicator on a node.
func (c *Config) machine(self *crdt.Self, started time.Time, maxPayload int) (*replica.Machine, error) {
	room := room(maxPayload)
	m, err := replica.New(replica.Config{
		Name: c.Name, MaxPayload: maxPayload,
		Protocol: replication.Config{
			Self: self, Types: c.Types, Roles: c.Roles, Durable: c.Durable, Expire: c.Expire, Started: started,
			GossipInterval: c.GossipInterval, NotifyInterval: c.NotifyInterval, DeltaInterval: c.DeltaInterval,
			PruneInterval: c.PruneInterval, PruneAfter: c.PruneAfter, DurablePruneAfter: c.DurablePruneAfter, MarkerTTL: c.MarkerTTL, DurableMarkerTTL: c.DurableMarkerTTL,
			Timeout: c.Timeout, DisableDeltas: c.DisableDeltas, MaxDeltaOps: c.MaxDeltaOps,
			MaxEntry: c.maxEntry(room), MaxBatch: min(256<<10, room),
			MaxKeys: c.MaxKeys, MaxRequests: c.MaxRequests, MaxLog: c.MaxLog,
			Rand: rand.New(rand.NewPCG(rand.Uint64(), self.Node().UID)),
		},
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}
