// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// TwoPhaseSet is a set whose elements can be removed permanently. It consists of two grow-only
// sets.
type TwoPhaseSet struct {
	added, removed crdt.GSet[string]
}

// Add returns the set with an element.
func (s TwoPhaseSet) Add(e string) (TwoPhaseSet, error) {
	added, err := s.added.Add(e)
	return TwoPhaseSet{added, s.removed}, err
}

// Remove returns the set without an element. The element cannot be added again.
func (s TwoPhaseSet) Remove(e string) (TwoPhaseSet, error) {
	removed, err := s.removed.Add(e)
	return TwoPhaseSet{s.added, removed}, err
}

// Contains reports whether an element is in the set.
func (s TwoPhaseSet) Contains(e string) bool { return s.added.Contains(e) && !s.removed.Contains(e) }

// Merge is the first of the two methods that a data type must have.
func (s TwoPhaseSet) Merge(other TwoPhaseSet) (TwoPhaseSet, error) {
	added, err := s.added.Merge(other.added)
	if err != nil {
		return s, err
	}
	removed, err := s.removed.Merge(other.removed)
	return TwoPhaseSet{added, removed}, err
}

// AppendBinary is the second of the two methods.
func (s TwoPhaseSet) AppendBinary(dst []byte) ([]byte, error) {
	added, err := s.added.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	dst = append(binary.AppendUvarint(dst, uint64(len(added))), added...)
	return s.removed.AppendBinary(dst)
}

// DecodeTwoPhaseSet reads the output of AppendBinary.
func DecodeTwoPhaseSet(data []byte) (s TwoPhaseSet, err error) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return s, errors.New("cut short")
	}
	added, removed := data[size:size+int(n)], data[size+int(n):]
	if s.added, err = decodeGSet(added); err == nil {
		s.removed, err = decodeGSet(removed)
	}
	return s, err
}

func decodeGSet(data []byte) (crdt.GSet[string], error) {
	v, err := (*crdt.Types)(nil).Decode(data)
	if err != nil {
		return crdt.GSet[string]{}, err
	}
	return crdt.As[crdt.GSet[string]](nil, v)
}

// A user's data type: TwoPhaseSet has the methods Merge and AppendBinary, and a function that
// decodes it.
func ExampleDefine() {
	types, err := crdt.NewTypes(nil, crdt.Define("two-phase-set", DecodeTwoPhaseSet))
	if err != nil {
		panic(err)
	}

	// Two nodes change it.
	here, _ := TwoPhaseSet{}.Add("apple")
	here, _ = here.Add("pear")
	there, _ := here.Remove("apple")
	there, _ = there.Add("apple") // has no effect after the removal

	// A replicator performs these steps.
	mine, _ := types.Value(here)
	theirs, _ := types.Value(there)
	data, _ := theirs.AppendBinary(nil)
	received, _ := types.Decode(data)
	merged, err := mine.Merge(received)
	if err != nil {
		panic(err)
	}
	set, _ := crdt.As[TwoPhaseSet](types, merged)
	fmt.Println("apple:", set.Contains("apple"))
	fmt.Println("pear:", set.Contains("pear"))
	// Output:
	// apple: false
	// pear: true
}

func Example() {
	newSelf := func(name string) *crdt.Self {
		node, err := identity.New(name)
		if err != nil {
			panic(err)
		}
		self, err := crdt.NewSelf(node)
		if err != nil {
			panic(err)
		}
		return self
	}
	a, b := newSelf("orders-1:7400"), newSelf("orders-2:7400")

	var atA, atB crdt.ORSet[string]
	atA, _ = atA.Add(a, "milk", "tea")
	atB, _ = atB.Merge(atA)
	atA, _ = atA.Remove(a, "tea")
	atB, _ = atB.Add(b, "tea") // concurrently

	atA, _ = atA.Merge(atB)
	fmt.Println(atA.Elements())
	// Output: [milk tea] <nil>
}
