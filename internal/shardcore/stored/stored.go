// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package stored encodes and decodes the records that package sharding keeps in a journal, apart
// from those of the coordinator, which package coordinator encodes. Check decodes all of them for
// tools.
package stored

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/wire"
)

// Manifests of the events and snapshots of a coordinator, of the remembered entities of a shard, and
// of the shards with remembered entities. They never change; the encodings have their own versions.
const (
	CoordinatorEvent = "refold.coordinator.event"
	CoordinatorState = "refold.coordinator.state"
	EntitiesEvent    = "refold.entities.event"
	EntitiesState    = "refold.entities.state"
	ShardsEvent      = "refold.shards.event"
	ShardsState      = "refold.shards.state"
	// Removed is the manifest of an event without payload that begins an empty history.
	Removed = "refold.sharding.removed"
)

const version = 1

// Kinds of an event of a shard.
const (
	entitiesStarted = 1
	entitiesStopped = 2
)

const (
	// MaxEntityID is the maximum length of the ID of an entity in bytes.
	MaxEntityID = 512
	// MaxBytes is the maximum size of the remembered entities of one shard in bytes.
	MaxBytes = 64 << 20
	// maxIDsPerEvent is the maximum number of entities in one event.
	maxIDsPerEvent = 100
)

// ErrMalformed reports a record that cannot be decoded.
var ErrMalformed = errors.New("malformed record")

// Check decodes an event or a snapshot. known is false if the manifest is not one of package
// sharding.
func Check(manifest string, payload []byte) (known bool, err error) {
	switch manifest {
	case CoordinatorEvent:
		_, err = coordinator.DecodeEvent(payload)
	case CoordinatorState:
		if _, _, err = coordinator.Restore(payload, nil, 0); len(payload) == 0 {
			err = ErrMalformed // Restore returns the empty state
		}
	case EntitiesEvent:
		err = Entities{}.Apply(payload)
	case EntitiesState:
		_, err = DecodeEntities(payload)
	case ShardsEvent, ShardsState:
		_, err = DecodeShards(payload)
	case Removed:
		if len(payload) > 0 {
			err = ErrMalformed
		}
	default:
		return false, nil
	}
	return true, err
}

func appendIDs(dst []byte, ids []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = binary.AppendUvarint(dst, uint64(len(id)))
		dst = append(dst, id...)
	}
	return dst
}

// readIDs reads a list of IDs, which must fill the rest of the record.
func readIDs(r *wire.Reader, yield func(id string)) error {
	for range r.Count(MaxBytes, 2, "entities") {
		id := r.Bytes(int(r.Uint(MaxEntityID, "length of an ID")), "ID") //nolint:gosec // at most MaxEntityID
		if len(id) == 0 {
			r.Fail("ID is empty")
		}
		if r.Err() != nil {
			break
		}
		yield(string(id))
	}
	return r.End()
}

func newRecord(b []byte) *wire.Reader {
	return wire.NewReader(b, version, MaxBytes, ErrMalformed)
}

// EntityEvents returns the events of entities that were started and stopped.
func EntityEvents(started, stopped []string) [][]byte {
	var events [][]byte
	add := func(kind byte, ids []string) {
		for part := range slices.Chunk(ids, maxIDsPerEvent) {
			events = append(events, appendIDs([]byte{version, kind}, part))
		}
	}
	add(entitiesStarted, started)
	add(entitiesStopped, stopped)
	return events
}

// Entities are the remembered entities of a shard.
type Entities map[string]struct{}

// Apply applies an event.
func (s Entities) Apply(event []byte) error {
	r := newRecord(event)
	switch kind := r.Byte("kind"); kind {
	case entitiesStarted:
		return readIDs(r, func(id string) { s[id] = struct{}{} })
	case entitiesStopped:
		return readIDs(r, func(id string) { delete(s, id) })
	default:
		r.Fail("unknown kind %d", kind)
		return r.Err()
	}
}

// Encode returns the encoding of a snapshot.
func (s Entities) Encode() []byte { return appendIDs([]byte{version}, s.Sorted()) }

// Sorted returns the IDs in order.
func (s Entities) Sorted() []string { return slices.Sorted(maps.Keys(s)) }

// DecodeEntities decodes a snapshot.
func DecodeEntities(b []byte) (Entities, error) {
	s := Entities{}
	return s, readIDs(newRecord(b), func(id string) { s[id] = struct{}{} })
}

// EncodeShards returns the encoding of an event and of a snapshot of shards.
func EncodeShards(shards []coordinator.Shard) []byte { return wire.AppendList([]byte{version}, shards) }

// DecodeShards decodes an event or a snapshot of shards.
func DecodeShards(b []byte) ([]coordinator.Shard, error) {
	r := newRecord(b)
	return wire.List[coordinator.Shard](r, coordinator.MaxShards, "shards"), r.End()
}
