// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

// kind is a data type. The numbers are stored.
type kind byte

const (
	kindGCounter kind = iota + 1
	kindPNCounter
	kindGSet
	kindORSet
	kindFlag
	kindRegister
	kindVersions
	kindMap
	kindMultiMap
	kindMultiMapDeltas
	kindCounterMap
	kindRegisterMap
	kindOwn // a user's
)

func (k kind) String() string {
	return [...]string{
		"nothing", "GCounter", "PNCounter", "GSet", "ORSet", "Flag", "LWWRegister", "VersionVector",
		"ORMap", "ORMultiMap", "ORMultiMap with value deltas", "PNCounterMap", "LWWMap", "own",
	}[k]
}

func (k kind) isMap() bool { return k >= kindMap && k <= kindRegisterMap }

func (k kind) hasElements() bool {
	return k == kindGSet || k == kindORSet || k == kindRegister || k.isMap()
}

// shape is the type of a value, with its parameters. Shapes are never changed.
type shape struct {
	kind kind
	elem elementKind // of the elements, keys or the register's value
	of   *shape      // of a map's values
	own  *definition // of a user's type
}

func (s shape) equal(other shape) bool {
	switch {
	case s.kind != other.kind || s.elem != other.elem:
		return false
	case s.of != other.of && (s.of == nil || other.of == nil || !s.of.equal(*other.of)):
		return false
	}
	return s.own == other.own || s.own != nil && other.own != nil && s.own.name == other.own.name && s.own.typ == other.own.typ
}

// depth returns how many levels of types there are.
func (s shape) depth() int {
	n := 1
	for ; s.of != nil; n++ {
		s = *s.of
	}
	return n
}

func (s shape) String() string {
	switch {
	case s.kind == kindOwn:
		return s.own.name
	case s.of != nil:
		return s.kind.String() + "[" + s.elem.String() + ", " + s.of.String() + "]"
	case s.elem != 0:
		return s.kind.String() + "[" + s.elem.String() + "]"
	}
	return s.kind.String()
}

// deltas tells how values of the type spread their changes.
func (s shape) deltas() Deltas {
	switch s.kind {
	case kindGCounter, kindPNCounter, kindGSet:
		return FreeDeltas
	case kindORSet, kindMap, kindMultiMap, kindMultiMapDeltas, kindCounterMap, kindRegisterMap:
		return CausalDeltas
	case kindOwn:
		return s.own.deltas
	case kindFlag, kindRegister, kindVersions:
	}
	return NoDeltas
}

// empty returns the value of the type that holds nothing.
func (s shape) empty() core {
	switch s.kind {
	case kindGCounter:
		return &gcounter{}
	case kindPNCounter:
		return &pncounter{}
	case kindGSet:
		return &gset{elem: s.elem}
	case kindORSet:
		return &orset{elem: s.elem}
	case kindFlag:
		return &flag{}
	case kindRegister:
		return &register{elem: s.elem}
	case kindVersions:
		return &versions{}
	case kindOwn:
		return s.own.zero()
	case kindMap, kindMultiMap, kindMultiMapDeltas, kindCounterMap, kindRegisterMap:
	}
	typ := s // so that s itself takes no memory on the heap
	return &ormap{typ: &typ, keys: &orset{elem: s.elem}}
}
