// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"encoding/binary"
	"errors"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/wire"
)

// ErrMalformed is matched by errors about bytes that are not a valid packet.
var ErrMalformed = errors.New("region: malformed")

// version is the version of the encoding: see package wire.
const version = 0x10

const (
	// MaxPacket is the maximum size of an encoded packet in bytes.
	MaxPacket = 16 << 20
	// MaxEntity is the maximum length of an entity ID in bytes.
	MaxEntity = 1024
)

// Packet is a frame on the wire, without the token, which is local to a region.
type Packet struct {
	// Type is the name of the entity type.
	Type string
	Frame
	// Entity and Body are the receiver and the message of Forward. Body is not copied.
	Entity string
	Body   []byte
}

// AppendPacket appends the encoding of a packet.
func AppendPacket(dst []byte, p Packet) []byte {
	dst = append(dst, version, byte(p.Kind), byte(len(p.Type))) //nolint:gosec // at most coordinator.MaxTypeLength
	dst = append(dst, p.Type...)
	switch p.Kind {
	case Forward:
		dst = binary.AppendUvarint(dst, uint64(p.Shard))
		dst = append(dst, byte(p.Hop)) //nolint:gosec // 0 or 1
		dst = binary.AppendUvarint(dst, uint64(len(p.Entity)))
		dst = append(dst, p.Entity...)
		dst = binary.AppendUvarint(dst, uint64(len(p.Body)))
		dst = append(dst, p.Body...)
	case NotHome:
		dst = binary.AppendUvarint(dst, uint64(p.Shard))
	case Flush, Flushed:
		dst = append(dst, byte(p.Hop)) //nolint:gosec // 0 or 1
		dst = binary.AppendUvarint(dst, p.Instance)
		dst = binary.AppendUvarint(dst, p.ID)
		dst = wire.AppendList(dst, p.Shards)
	}
	return dst
}

// DecodePacket decodes the result of AppendPacket. The error matches ErrMalformed.
func DecodePacket(b []byte) (Packet, error) {
	r := wire.NewReader(b, version, MaxPacket, ErrMalformed)
	p := Packet{Frame: Frame{Kind: FrameKind(r.Byte("kind"))}}
	p.Type = string(r.Bytes(int(r.Byte("length")), "type"))
	if r.Err() == nil && p.Type == "" {
		r.Fail("empty type")
	}
	shard := func() Shard { return Shard(r.Uint(coordinator.MaxShards-1, "shard")) } //nolint:gosec // below MaxShards
	hop := func() int { return int(r.Uint(relayed, "hops")) }                        //nolint:gosec // at most 1
	switch p.Kind {
	case Forward:
		p.Shard, p.Hop = shard(), hop()
		p.Entity = string(r.Bytes(r.Count(MaxEntity, 1, "bytes of an ID"), "ID"))
		p.Body = r.Bytes(r.Count(MaxPacket, 1, "bytes of a message"), "message")
	case NotHome:
		p.Shard = shard()
	case Flush, Flushed:
		p.Hop, p.Instance, p.ID = hop(), r.Uint(1<<63, "instance"), r.Uint(1<<63, "number")
		p.Shards = wire.List[Shard](r, coordinator.MaxShards, "shards")
	default:
		r.Fail("unknown kind %v", p.Kind)
	}
	if err := r.End(); err != nil {
		return Packet{}, err
	}
	return p, nil
}
