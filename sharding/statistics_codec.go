// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/transport"
)

// kindQuestion is a question about a region. It never changes.
const kindQuestion transport.Kind = 203

// question is what nodes ask each other about regions. The numbers never change.
type question byte

const (
	askRegions question = 1 // to the coordinator: which regions there are
	askCounts  question = 2 // how many entities a region has
)

// errUnanswered is the cause of a context that ends since nobody has answered in time.
var errUnanswered = errors.New("sharding: no answer in time")

const (
	maxInformation = 16 << 20
	maxReason      = 512
)

// encodeQuestion encodes a question about a type.
func encodeQuestion(what question, name string) []byte {
	return append([]byte{formVersion, byte(what), byte(len(name))}, name...) //nolint:gosec // at most coordinator.MaxTypeLength
}

// decodeQuestion reads what encodeQuestion has written. The error matches errMalformed.
func decodeQuestion(b []byte) (what question, name string, err error) {
	r := wire.NewReader(b, formVersion, maxManifest, errMalformed)
	what = question(r.Byte("question"))
	name = string(r.Bytes(int(r.Byte("length")), "type"))
	return what, name, r.End()
}

// encodeInformation encodes an answer, or why there is none.
func encodeInformation(answer []byte, err error) []byte {
	if err != nil {
		text := err.Error()
		text = text[:min(len(text), maxReason)]
		return append(binary.AppendUvarint([]byte{formVersion, 1}, uint64(len(text))), text...)
	}
	return append([]byte{formVersion, 0}, answer...)
}

// decodeInformation reads what encodeInformation has written. The error matches errMalformed, or says why there is no answer.
func decodeInformation(b []byte) ([]byte, error) {
	r := wire.NewReader(b, formVersion, maxInformation, errMalformed)
	failed := r.Byte("form")
	if err := r.Err(); err != nil {
		return nil, err
	}
	if failed == 0 {
		return b[2:], nil
	}
	text := r.Bytes(r.Count(maxReason, 1, "bytes of a reason"), "reason")
	if err := r.End(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("the node says: %.*q", maxReason, text)
}

// encodeNodes encodes the nodes of regions.
func encodeNodes(regions []allocation.Region) []byte {
	dst := binary.AppendUvarint([]byte{formVersion}, uint64(len(regions)))
	for i := range regions {
		dst = wire.AppendNode(dst, regions[i].Node)
	}
	return dst
}

// decodeNodes reads what encodeNodes has written. The error matches errMalformed.
func decodeNodes(b []byte) ([]identity.Node, error) {
	r := wire.NewReader(b, formVersion, maxInformation, errMalformed)
	nodes := make([]identity.Node, r.Count(coordinator.MaxRegions, 10, "regions"))
	for i := range nodes {
		nodes[i] = r.Node()
	}
	return nodes, r.End()
}

// encodeCounts encodes how many entities shards have. The shards are sorted: each is written as what it is more than the one before.
func encodeCounts(counts []ShardCount) []byte {
	dst := binary.AppendUvarint([]byte{formVersion}, uint64(len(counts)))
	last := Shard(0)
	for _, c := range counts {
		dst = binary.AppendUvarint(dst, uint64(c.Shard-last))
		dst = binary.AppendUvarint(dst, uint64(max(0, c.Entities)))
		last = c.Shard
	}
	return dst
}

// decodeCounts reads what encodeCounts has written. The error matches errMalformed.
func decodeCounts(b []byte) ([]ShardCount, error) {
	r := wire.NewReader(b, formVersion, maxInformation, errMalformed)
	counts := make([]ShardCount, r.Count(coordinator.MaxShards, 2, "shards"))
	last := uint64(0)
	for i := range counts {
		n := last + r.Uint(coordinator.MaxShards-1, "shard")
		if n >= coordinator.MaxShards || i > 0 && n == last {
			r.Fail("shard %d comes behind %d", n, last)
		}
		counts[i] = ShardCount{Shard(n), int(r.Uint(1<<40, "entities"))} //nolint:gosec // checked
		last = n
	}
	return counts, r.End()
}
