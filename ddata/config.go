// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/replication"
)

// DefaultName is the name of a replicator without Config.Name.
const DefaultName = "ddata"

// Config configures a replicator. It should be the same on all nodes, except Opener, Logger and
// Observer.
type Config struct {
	// Name identifies a replicator on its node. Replicators with the same name on different nodes
	// hold the same data. Up to 128 letters, digits and "_-:.". Defaults to DefaultName.
	Name string
	// Roles are the roles that a node needs to hold the data. The node needs all of them. On a node
	// without these roles Start fails, and replicators ignore such a node. Defaults to none: all
	// nodes hold the data. Every member with the roles counts in majorities; a member that has not
	// started a replicator of this name never answers.
	Roles []string
	// Types are the data types and element types of the program:
	// crdt.NewTypes(codec.Types(codec.Name[Product]("product"))) allows Product as an element type.
	// Defaults to the types of package crdt with elements of basic kinds. All nodes need a type
	// before any node uses it, because nodes refuse data of unknown types.
	Types *crdt.Types

	// Durable are the keys that are stored on disk: exact keys, and prefixes that end in a star.
	// Defaults to none. Start loads them before it returns. Unless WriteBehind is set, a change is
	// on disk before it is acknowledged.
	Durable []string
	// Opener opens the store of durable keys, for example leveldb.NewDurable of plugins/leveldb.
	// Required if Durable is not empty. The replicator closes the store.
	Opener durable.Opener
	// WriteBehind is the delay after which changes are written to disk. Requests do not wait for
	// the write, so a crash loses acknowledged changes of up to this delay. Defaults to 0: requests
	// wait for the write.
	WriteBehind time.Duration

	// Expire maps exact keys, and prefixes that end in a star, to the time without use after which
	// a key is removed on all nodes. An exact key takes precedence over prefixes, a longer prefix
	// over a shorter one. Each time is at least GossipInterval and must be the same on all nodes.
	Expire map[string]time.Duration
	// PreferOldest sends requests to the oldest nodes first, instead of to random nodes. Use it if
	// a singleton writes the data, because a singleton runs on the oldest node.
	PreferOldest bool
	// Timeout is the timeout of requests whose context has no deadline. It also limits how long
	// such a request waits before it begins. Defaults to 5 s.
	Timeout time.Duration

	// GossipInterval is the time between comparisons of all data with another node. Defaults to 2
	// s.
	GossipInterval time.Duration
	// NotifyInterval is the time between notifications of subscribers. Defaults to 500 ms.
	NotifyInterval time.Duration
	// DeltaInterval is the time between propagations of changes to other nodes. The first change
	// after a quiet period is sent at once. Defaults to 200 ms.
	DeltaInterval time.Duration
	// PruneInterval is the time between searches for history of removed nodes. History that is
	// found is moved to another node. Defaults to 2 minutes; negative disables pruning.
	PruneInterval time.Duration
	// PruneAfter is the time from the removal of a node until its history is pruned. The time
	// counts only while all other nodes are reachable. Defaults to 5 minutes. DurablePruneAfter
	// applies to durable keys and defaults to 24 hours. If a node returns after a longer absence,
	// changes of pruned nodes that are stored only on its own disk are lost.
	PruneAfter, DurablePruneAfter time.Duration
	// MarkerTTL is how long nodes remember that a node was pruned. A node with history of the
	// pruned node must not return after this time. Defaults to 6 hours. DurableMarkerTTL applies to
	// durable keys and defaults to 10 days.
	MarkerTTL, DurableMarkerTTL time.Duration
	// DisableDeltas sends all changes as whole values.
	DisableDeltas bool
	// MaxDeltaOps is the number of operations in the delta of a key at which the whole value is
	// sent instead. Defaults to 50.
	MaxDeltaOps int
	// MaxEntry is the maximum size of the encoded value that an update may produce, in bytes. The
	// minimum is 1. MaxEntry must be slightly less than 1 MiB and than the maximum payload of the
	// transport. Defaults to 512 KiB, or half of the maximum payload if that is less. The
	// log has a warning when an update raises a value above three quarters of MaxEntry, once for
	// each key and rise.
	MaxEntry int
	// MaxKeys is the maximum number of keys, including deleted ones. Defaults to 10,000,000.
	MaxKeys int
	// MaxRequests is the maximum number of open requests. Defaults to 65,536.
	MaxRequests int
	// MaxLog is the maximum number of changes that wait for nodes that cannot receive them at once.
	// Changes that are dropped from the log reach those nodes as whole values. Defaults to 10,000.
	MaxLog int

	// Logger receives the log. A handler that blocks delays the replicator; a line whose handler panics
	// is lost. Defaults to the logger of the node, which does not block.
	Logger *slog.Logger
	// Observer receives requests and statistics. Optional.
	Observer Observer
	// StatsInterval is the time between calls of Observer.Stats. Defaults to 0: never.
	StatsInterval time.Duration
}

func (c Config) withDefaults(node *cluster.Node) Config {
	c.Name = cmp.Or(c.Name, DefaultName)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.Logger == nil {
		c.Logger = node.Logger()
	}
	c.Logger = slog.New(loop.SafeHandler(c.Logger.Handler())) // a panic in a turn would end the replicator
	return c
}

// validate checks the fields that the protocol does not check.
func (c *Config) validate(node *cluster.Node) fielderror.Errors {
	var errs fielderror.Errors
	for _, role := range c.Roles {
		if !slices.Contains(node.Roles(), role) {
			errs.Addf("Config.Roles", "has %q, which is not a role of this node", role)
		}
	}
	if len(c.Durable) > 0 && c.Opener == nil {
		errs.Addf("Config.Opener", "is missing: Config.Durable requires it")
	} else if len(c.Durable) == 0 && c.Opener != nil {
		errs.Addf("Config.Opener", "is set, but Config.Durable is empty")
	}
	fielderror.NotNegative(&errs, "Config.WriteBehind", c.WriteBehind)
	fielderror.NotNegative(&errs, "Config.StatsInterval", c.StatsInterval)
	return errs
}

// maxEntry returns the maximum size of a value for messages with room bytes.
func (c *Config) maxEntry(room int) int { return cmp.Or(c.MaxEntry, min(512<<10, room/2)) }

func room(maxPayload int) int { return min(maxPayload-replication.Overhead, replication.MaxMessage) }

func (c *Config) machine(self *crdt.Self, started time.Time, maxPayload, maxParts int) (*replication.Machine, error) {
	room := room(maxPayload)
	return replication.New(replication.Config{
		Name: c.Name, Self: self, Types: c.Types, Roles: c.Roles, Durable: c.Durable, Expire: c.Expire, Started: started,
		GossipInterval: c.GossipInterval, NotifyInterval: c.NotifyInterval, DeltaInterval: c.DeltaInterval,
		PruneInterval: c.PruneInterval, PruneAfter: c.PruneAfter, DurablePruneAfter: c.DurablePruneAfter, MarkerTTL: c.MarkerTTL, DurableMarkerTTL: c.DurableMarkerTTL,
		Timeout: c.Timeout, DisableDeltas: c.DisableDeltas, MaxDeltaOps: c.MaxDeltaOps,
		MaxEntry: c.maxEntry(room), MaxMessage: room, MaxBatch: min(256<<10, room), MaxParts: maxParts,
		MaxKeys: c.MaxKeys, MaxRequests: c.MaxRequests, MaxLog: c.MaxLog,
		Rand: rand.New(rand.NewPCG(rand.Uint64(), self.Node().UID)),
	})
}
