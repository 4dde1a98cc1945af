// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// AppendState appends the encoding of a state: the term and its holder, the regions, each with
// its shards, and the proxies. Of a name that begins as the one before it only the rest is written. A shard
// takes 1 to 3 bytes.
func AppendState(dst []byte, s State) []byte {
	dst = append(dst, wire)
	dst = binary.AppendUvarint(dst, s.term)
	if s.term > 0 {
		dst = appendNode(dst, s.holder)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.regions)))
	before := ""
	for _, r := range s.regions {
		dst = appendNext(dst, &before, r.Node)
		dst = appendShards(dst, r.Shards)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.proxies)))
	before = ""
	for _, n := range s.proxies {
		dst = appendNext(dst, &before, n)
	}
	return dst
}

// appendNext appends a node behind the one with the name before.
func appendNext(dst []byte, before *string, n identity.Node) []byte {
	same := 0
	for same < min(len(*before), len(n.Name)) && (*before)[same] == n.Name[same] {
		same++
	}
	*before = n.Name
	dst = append(dst, byte(same), byte(len(n.Name)-same)) //nolint:gosec // at most identity.MaxNameLength
	dst = append(dst, n.Name[same:]...)
	return binary.LittleEndian.AppendUint64(dst, n.UID)
}

// DecodeState decodes what AppendState has written. The error matches
// ErrMalformed.
func DecodeState(b []byte) (State, error) {
	r := newReader(b)
	var s State
	if s.term = r.uint(1<<63, "term"); s.term > 0 {
		s.holder = r.node()
	}
	var before identity.Node
	for range r.count(MaxRegions, 11, "regions") {
		before = r.next(before)
		region := allocation.Region{Node: before, Shards: r.shards()}
		if r.err != nil {
			break
		}
		s.regions = append(s.regions, region)
		s.shards += len(region.Shards)
	}
	s.place(r)
	before = identity.Node{}
	for range r.count(MaxRegions, 10, "proxies") {
		before = r.next(before)
		if r.err != nil {
			break
		}
		s.proxies = append(s.proxies, before)
	}
	if err := r.end(); err != nil {
		return State{}, err
	}
	return s, nil
}

// next reads the node behind another one.
func (r *reader) next(before identity.Node) identity.Node {
	same := int(r.byte("name"))
	rest := r.bytes(int(r.byte("length")), "name")
	if r.err == nil && same > len(before.Name) {
		r.fail("a name begins with %d bytes of one that has %d", same, len(before.Name))
	}
	if r.err != nil {
		return identity.Node{}
	}
	n := identity.Node{Name: before.Name[:same] + string(rest)}
	n.UID = r.uid()
	if n = r.checked(n); r.err == nil && before.Compare(n) >= 0 {
		r.fail("%v comes after %v", n, before)
	}
	return n
}

// place finds the homes of the shards.
func (s *State) place(r *reader) {
	most := Shard(0)
	for _, region := range s.regions {
		if len(region.Shards) > 0 {
			most = max(most, slices.Max(region.Shards)+1)
		}
	}
	s.homes = make([]identity.Node, most)
	for _, region := range s.regions {
		for _, shard := range region.Shards {
			if home := s.homes[shard]; !home.IsZero() {
				r.fail("shard %d is on %v and %v", shard, home, region.Node)
				return
			}
			s.homes[shard] = region.Node
		}
	}
}
