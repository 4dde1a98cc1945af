// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/sharding/allocation"
)

// State is the durable data of a coordinator: the regions and the shards that they host. It is
// immutable, and the zero value is empty. Its results must not be modified.
type State struct {
	term    uint64
	holder  identity.Node
	regions []allocation.Region // sorted by node
	proxies []identity.Node     // sorted
	pins    []Pin               // sorted by shard
	homes   []uint16            // for each shard up to the highest one with a home: the number of its region, from 1, or 0
	shards  int
}

// Term returns the term of the last coordinator, or 0.
func (s State) Term() uint64 { return s.term }

// Holder returns the node of the last coordinator.
func (s State) Holder() identity.Node { return s.holder }

// Regions returns the regions, sorted by node, with their shards in the order of allocation.
func (s State) Regions() []allocation.Region { return s.regions }

// Proxies returns the nodes that send to shards and host none, sorted.
func (s State) Proxies() []identity.Node { return s.proxies }

// Shards returns the number of shards with a home.
func (s State) Shards() int { return s.shards }

// Home returns the region that hosts a shard.
func (s State) Home(shard Shard) (identity.Node, bool) {
	if int(shard) >= len(s.homes) {
		return identity.Node{}, false
	}
	nr := s.homes[shard]
	if nr == 0 {
		return identity.Node{}, false
	}
	return s.regions[nr-1].Node, true
}

// Region returns the shards of a region.
func (s State) Region(n identity.Node) ([]Shard, bool) {
	i, found := allocation.Find(s.regions, n)
	if !found {
		return nil, false
	}
	return s.regions[i].Shards, true
}

// HasProxy reports whether a node is registered as a proxy.
func (s State) HasProxy(n identity.Node) bool { return has(s.proxies, n) }

// nodes returns the nodes of all regions and proxies, sorted.
func (s State) nodes() []identity.Node {
	all := slices.Clone(s.proxies)
	for _, r := range s.regions {
		all = with(all, r.Node)
	}
	return all
}

// Equal reports whether two states are equal, including the order of allocation.
func (s State) Equal(other State) bool {
	return s.term == other.term && s.holder == other.holder && slices.Equal(s.proxies, other.proxies) && slices.Equal(s.pins, other.pins) &&
		slices.EqualFunc(s.regions, other.regions, func(a, b allocation.Region) bool {
			return a.Node == b.Node && slices.Equal(a.Shards, b.Shards)
		})
}

// Apply returns the state after events. The error describes the first invalid event.
func (s State) Apply(events ...Event) (State, error) {
	f := NewFold(s)
	for _, e := range events {
		if err := f.Apply(e); err != nil {
			return State{}, err
		}
	}
	return f.state, nil
}

// Claimed returns the state with a higher term that was claimed and has no holder yet. It returns
// the state itself if the term is not higher.
func (s State) Claimed(term uint64) State {
	if term > s.term {
		s.term, s.holder = term, identity.Node{}
	}
	return s
}

// Restore returns the state of stored bytes: the result of AppendState, or nil for the empty state,
// and the results of AppendEvent for the events after it. The last claimed term may be higher than
// the term of the state. The Fold has the repairs. The error matches ErrMalformed.
func Restore(state []byte, events [][]byte, claimed uint64) (State, *Fold, error) {
	var s State
	if state != nil {
		var err error
		if s, err = DecodeState(state); err != nil {
			return State{}, nil, err
		}
	}
	f := NewFold(s)
	for _, b := range events {
		e, err := DecodeEvent(b)
		if err != nil {
			return State{}, nil, err
		}
		f.Replay(e)
	}
	return f.State().Claimed(claimed), f, nil
}

func has(nodes []identity.Node, n identity.Node) bool {
	_, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	return found
}

func with(nodes []identity.Node, n identity.Node) []identity.Node {
	i, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	if found {
		return nodes
	}
	return slices.Insert(nodes, i, n)
}

func without(nodes []identity.Node, n identity.Node) []identity.Node {
	i, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	if !found {
		return nodes
	}
	return slices.Delete(nodes, i, i+1)
}

// stateVersion is the version of a state with pins.
const stateVersion = 0x11

// AppendState appends the encoding of a state: the term and its holder, the regions with their
// shards, the proxies, and the pins if there are any. Of each name only the part after its common prefix with the previous
// name is written. A shard takes 1 to 3 bytes.
func AppendState(dst []byte, s State) []byte {
	v := byte(version)
	if len(s.pins) > 0 {
		v = stateVersion
	}
	dst = append(dst, v)
	dst = binary.AppendUvarint(dst, s.term)
	if s.term > 0 {
		dst = wire.AppendNode(dst, s.holder)
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
	return appendPins(dst, s.pins)
}

// StateBytes returns the maximum encoded size of the given number of shards, without the names of
// regions.
func StateBytes(shards int) int {
	const one, two = 1 << 7, 1 << 14 // larger numbers take another byte
	return shards + max(0, shards-one) + max(0, shards-two)
}

// appendNext appends a node. before is the name of the previous node and becomes the name of n.
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

// DecodeState decodes the result of AppendState. It allocates memory in proportion to the input,
// plus 200 kB at most for high shard numbers. The error matches ErrMalformed.
func DecodeState(b []byte) (State, error) {
	r := wire.NewReader(b, stateVersion, MaxBytes, ErrMalformed)
	var s State
	if s.term = r.Uint(1<<63, "term"); s.term > 0 {
		s.holder = r.Node()
	}
	var before identity.Node
	for range r.Count(MaxRegions, 11, "regions") {
		before = next(r, before)
		region := allocation.Region{Node: before, Shards: readShards(r)}
		if r.Err() != nil {
			break
		}
		s.regions = append(s.regions, region)
		s.shards += len(region.Shards)
	}
	s.computeHomes(r)
	before = identity.Node{}
	for range r.Count(MaxRegions, 10, "proxies") {
		before = next(r, before)
		if r.Err() != nil {
			break
		}
		s.proxies = append(s.proxies, before)
	}
	if r.Err() == nil && r.Minor() > 0 {
		s.pins = readStatePins(r)
	}
	if err := r.End(); err != nil {
		return State{}, err
	}
	return s, nil
}

// next reads the node that follows another one.
func next(r *wire.Reader, before identity.Node) identity.Node {
	same := int(r.Byte("name"))
	rest := r.Bytes(int(r.Byte("length")), "name")
	if r.Err() == nil && same > len(before.Name) {
		r.Fail("a name shares %d bytes with a name of %d bytes", same, len(before.Name))
	}
	if r.Err() != nil {
		return identity.Node{}
	}
	n := identity.Node{Name: before.Name[:same] + string(rest)}
	n.UID = r.UID()
	if n = r.Checked(n); r.Err() == nil && before.Compare(n) >= 0 {
		r.Fail("%v does not sort after %v", n, before)
	}
	return n
}

// computeHomes computes the homes of the shards. The homes take 2 bytes for each shard up to the
// highest, 200 kB at most.
func (s *State) computeHomes(r *wire.Reader) {
	most := Shard(0)
	for _, region := range s.regions {
		if len(region.Shards) > 0 {
			most = max(most, slices.Max(region.Shards)+1)
		}
	}
	s.homes = make([]uint16, most)
	for i, region := range s.regions {
		for _, shard := range region.Shards {
			if home := s.homes[shard]; home != 0 {
				r.Fail("shard %d has two homes, %v and %v", shard, s.regions[home-1].Node, region.Node)
				return
			}
			s.homes[shard] = uint16(i + 1)
		}
	}
}
