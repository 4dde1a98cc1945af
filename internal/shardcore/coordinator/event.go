// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// Shard is the number of a shard.
type Shard = allocation.Shard

// MaxShards is the largest number of shards of an entity type: the state of so many fits into one
// message.
const MaxShards = 100_000

// MaxRegions is the largest number of regions, and of proxies.
const MaxRegions = 10_000

// EventKind tells the events apart.
type EventKind uint8

// The numbers are those of the encoding and never change.
const (
	// Started says that a coordinator begins a term.
	Started EventKind = 1 + iota
	// RegionRegistered says that a region may host shards.
	RegionRegistered
	// ProxyRegistered says that a node sends to shards and hosts none.
	ProxyRegistered
	// RegionTerminated says that a region is gone, and its shards have no home.
	RegionTerminated
	// ProxyTerminated says that a proxy is gone.
	ProxyTerminated
	// HomesAllocated says that a region is the home of shards.
	HomesAllocated
	// HomesDeallocated says that shards, which were stopped, have no home.
	HomesDeallocated
)

func (k EventKind) String() string {
	switch k {
	case Started:
		return "started"
	case RegionRegistered:
		return "region registered"
	case ProxyRegistered:
		return "proxy registered"
	case RegionTerminated:
		return "region terminated"
	case ProxyTerminated:
		return "proxy terminated"
	case HomesAllocated:
		return "homes allocated"
	case HomesDeallocated:
		return "homes deallocated"
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is a change of the state of a coordinator. It is immutable.
type Event struct {
	Kind EventKind
	// Term is the one that begins, of Started.
	Term uint64
	// Node is that of the region, the proxy, or the coordinator. Of HomesDeallocated it is not
	// set.
	Node identity.Node
	// Shards are those that are allocated, in this order, or deallocated.
	Shards []Shard
}
