// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// What the records of remembered entities and shards are. They never change.
const (
	entitiesEvent = "refold.entities.event"
	entitiesState = "refold.entities.state"
	shardsEvent   = "refold.shards.event"
	shardsState   = "refold.shards.state"
)

// rememberWire is the version that each encoding begins with. Another one can't be read.
const rememberWire = 1

// What an event of a shard says.
const (
	entitiesStarted = 1
	entitiesStopped = 2
)

// maxIDsPerEvent is how many entities one event names.
const maxIDsPerEvent = 100

// maxRemembered is how many bytes the remembered entities of one shard take, in all.
const maxRemembered = 64 << 20

// errRecord is matched by the errors about records that can't be read.
var errRecord = errors.New("malformed record")

func appendIDs(dst []byte, ids []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = binary.AppendUvarint(dst, uint64(len(id)))
		dst = append(dst, id...)
	}
	return dst
}

// readIDs yields the IDs of an encoded list, which is all that is left.
func readIDs(b []byte, yield func(id string)) error {
	n, b, err := readUint(b)
	if err != nil || n > uint64(len(b))/2 {
		return fmt.Errorf("%w: %d entities in %d bytes", errRecord, n, len(b))
	}
	for range n {
		var size uint64
		if size, b, err = readUint(b); err != nil || size == 0 || size > MaxEntityID || size > uint64(len(b)) {
			return fmt.Errorf("%w: an entity of %d bytes", errRecord, size)
		}
		yield(string(b[:size]))
		b = b[size:]
	}
	if len(b) > 0 {
		return fmt.Errorf("%w: %d bytes too many", errRecord, len(b))
	}
	return nil
}

func readUint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errRecord
	}
	return v, b[n:], nil
}

func readWire(b []byte, size int) ([]byte, error) {
	if len(b) < size || b[0] != rememberWire {
		return nil, fmt.Errorf("%w: %d bytes of an unknown version", errRecord, len(b))
	}
	return b[1:], nil
}

// entityEvents encodes what an update says.
func entityEvents(started, stopped []string) [][]byte {
	var events [][]byte
	add := func(kind byte, ids []string) {
		for part := range slices.Chunk(ids, maxIDsPerEvent) {
			events = append(events, appendIDs([]byte{rememberWire, kind}, part))
		}
	}
	add(entitiesStarted, started)
	add(entitiesStopped, stopped)
	return events
}

// entitySet is the entities of a shard.
type entitySet map[string]struct{}

func (s entitySet) apply(event []byte) error {
	b, err := readWire(event, 2)
	if err != nil {
		return err
	}
	switch kind := b[0]; kind {
	case entitiesStarted:
		return readIDs(b[1:], func(id string) { s[id] = struct{}{} })
	case entitiesStopped:
		return readIDs(b[1:], func(id string) { delete(s, id) })
	default:
		return fmt.Errorf("%w: kind %d", errRecord, kind)
	}
}

// encode is the form of a snapshot.
func (s entitySet) encode() []byte { return appendIDs([]byte{rememberWire}, s.sorted()) }

func (s entitySet) sorted() []string {
	ids := make([]string, 0, len(s))
	for id := range s {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func decodeEntities(b []byte) (entitySet, error) {
	s := entitySet{}
	if b == nil {
		return s, nil
	}
	b, err := readWire(b, 2)
	if err != nil {
		return nil, err
	}
	return s, readIDs(b, func(id string) { s[id] = struct{}{} })
}

// encodeShards is the form of an event and of a snapshot.
func encodeShards(shards []Shard) []byte {
	b := binary.AppendUvarint([]byte{rememberWire}, uint64(len(shards)))
	for _, s := range shards {
		b = binary.AppendUvarint(b, uint64(s))
	}
	return b
}

func readShards(b []byte, yield func(Shard)) error {
	b, err := readWire(b, 2)
	if err != nil {
		return err
	}
	n, b, err := readUint(b)
	if err != nil || n > uint64(len(b)) || n > coordinator.MaxShards {
		return fmt.Errorf("%w: %d shards in %d bytes", errRecord, n, len(b))
	}
	for range n {
		var s uint64
		if s, b, err = readUint(b); err != nil || s >= coordinator.MaxShards {
			return fmt.Errorf("%w: shard %d", errRecord, s)
		}
		yield(Shard(s))
	}
	if len(b) > 0 {
		return fmt.Errorf("%w: %d bytes too many", errRecord, len(b))
	}
	return nil
}
