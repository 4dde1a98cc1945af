// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/sharding/allocation"
)

// Shard is the number of a shard.
type Shard = allocation.Shard

// MaxShards is the maximum number of shards of an entity type. With this number the state fits into
// one message.
const MaxShards = 100_000

// MaxRegions is the maximum number of regions, and of proxies.
const MaxRegions = 10_000

// EventKind is the kind of an event.
type EventKind uint8

// The numbers are part of the encoding and never change.
const (
	Started          EventKind = 1 + iota // begins the term of a coordinator
	RegionRegistered                      // adds a region that may host shards
	ProxyRegistered                       // adds a node that sends to shards and hosts none
	RegionTerminated                      // removes a region; its shards have no home
	ProxyTerminated                       // removes a proxy
	HomesAllocated                        // makes a region the home of shards
	HomesDeallocated                      // takes the home from shards that have stopped
	ShardsPinned                          // keeps shards on the node with the name Node.Name, see Pin
	ShardsReleased                        // removes the pins of shards
)

func (k EventKind) String() string {
	return enum.Name(k, "event", "", "started", "region registered", "proxy registered", "region terminated", "proxy terminated", "homes allocated",
		"homes deallocated", "shards pinned", "shards released")
}

// Event is a change of the state of a coordinator. It is immutable.
type Event struct {
	Kind EventKind
	// Term is the new term, for Started.
	Term uint64
	// Node is the node of the region, the proxy or the coordinator. It is not set for
	// HomesDeallocated and ShardsReleased. ShardsPinned has only the name.
	Node identity.Node
	// Shards are the allocated shards in this order, or the deallocated, pinned or released ones.
	Shards []Shard
}

// eventVersion is the version of ShardsPinned and ShardsReleased. Their encodings begin with that of
// a HomesDeallocated without shards. Releases that do not have these kinds skip the fields after
// it, so that they can still read the history.
const eventVersion = 0x11

// AppendEvent appends the encoding of an event.
func AppendEvent(dst []byte, e Event) []byte {
	if e.Kind == ShardsPinned || e.Kind == ShardsReleased {
		dst = append(dst, eventVersion, byte(HomesDeallocated), 0, byte(e.Kind))
		dst = appendShards(dst, e.Shards)
		if e.Kind == ShardsPinned {
			dst = append(append(dst, byte(len(e.Node.Name))), e.Node.Name...) //nolint:gosec // at most identity.MaxNameLength
		}
		return dst
	}
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

// DecodeEvent decodes the result of AppendEvent. The error matches ErrMalformed.
func DecodeEvent(b []byte) (Event, error) {
	r := wire.NewReader(b, eventVersion, MaxBytes, ErrMalformed)
	e := Event{Kind: EventKind(r.Byte("kind"))}
	if r.Err() == nil && (e.Kind < Started || e.Kind > HomesDeallocated) {
		r.Fail("unknown %v", e.Kind)
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
	if r.Err() == nil && r.Minor() > 0 && e.Kind == HomesDeallocated && len(e.Shards) == 0 {
		readPins(r, &e)
	}
	if err := r.End(); err != nil {
		return Event{}, err
	}
	return e, nil
}

// readPins reads the fields that follow a HomesDeallocated without shards.
func readPins(r *wire.Reader, e *Event) {
	e.Kind = EventKind(r.Byte("kind of pins"))
	if r.Err() == nil && e.Kind != ShardsPinned && e.Kind != ShardsReleased {
		r.Fail("unknown kind %d of pins", byte(e.Kind))
	}
	if e.Shards = readShards(r); e.Kind == ShardsPinned {
		e.Node.Name = readName(r)
	}
}
