// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
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

// AppendEvent appends the encoding of an event.
func AppendEvent(dst []byte, e Event) []byte {
	dst = append(dst, version, byte(e.Kind))
	if e.Kind == Started {
		dst = binary.AppendUvarint(dst, e.Term)
	}
	if e.Kind != HomesDeallocated {
		dst = wire.AppendNode(dst, e.Node)
	}
	if e.Kind == HomesAllocated || e.Kind == HomesDeallocated {
		dst = appendShards(dst, e.Shards)
	}
	return dst
}

// DecodeEvent decodes what AppendEvent has written. The error matches
// ErrMalformed.
func DecodeEvent(b []byte) (Event, error) {
	r := newReader(b)
	e := Event{Kind: EventKind(r.Byte("kind"))}
	if r.Err() == nil && (e.Kind < Started || e.Kind > HomesDeallocated) {
		r.Fail("%v is not known", e.Kind)
	}
	if e.Kind == Started {
		e.Term = r.Uint(1<<63, "term")
	}
	if e.Kind != HomesDeallocated {
		e.Node = r.Node()
	}
	if e.Kind == HomesAllocated || e.Kind == HomesDeallocated {
		e.Shards = readShards(r)
	}
	if err := r.End(); err != nil {
		return Event{}, err
	}
	return e, nil
}
