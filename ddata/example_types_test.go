// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// product is an element of a set. It is stored under the name "product", which must never change.
type product struct {
	Name  string
	Cents int
}

// highest is a user's data type: the highest bid. Package crdttest checks that such a type
// satisfies the laws.
type highest struct{ cents uint64 }

// Merge implements crdt.Data.
func (h highest) Merge(other highest) (highest, error) {
	return highest{max(h.cents, other.cents)}, nil
}

// AppendBinary implements crdt.Data.
func (h highest) AppendBinary(dst []byte) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, h.cents), nil
}

func decodeHighest(data []byte) (highest, error) {
	if len(data) != 8 {
		return highest{}, errors.New("not 8 bytes")
	}
	return highest{binary.BigEndian.Uint64(data)}, nil
}

// Types registers the types of a program on all nodes before one of them uses them: structs that
// are elements, keys or register values, and users' data types.
func ExampleConfig_types() {
	ctx := context.Background()
	types, err := crdt.NewTypes(codec.Types(codec.Name[product]("product")), crdt.Define("highest", decodeHighest))
	if err != nil {
		fmt.Println(err)
		return
	}
	a, b, end := pairOf(ctx, ddata.Config{Types: types})
	defer end()

	shelf := ddata.Key[crdt.ORSet[product]]("shelf")
	_, err = ddata.Update(ctx, a, shelf, ddata.WriteAll(), func(s crdt.ORSet[product]) (crdt.ORSet[product], error) {
		return s.Add(a.Self(), product{"tea", 350}, product{"milk", 120})
	})
	if err != nil {
		fmt.Println(err)
	}
	products, err := ddata.Get(ctx, b, shelf, ddata.ReadLocal())
	for p, err := range products.All() {
		fmt.Println(p.Name, p.Cents, err)
	}
	fmt.Println(products.Len(), err)

	bid := ddata.Key[highest]("bid-17")
	for _, cents := range []uint64{700, 500} {
		h, err := ddata.Update(ctx, b, bid, ddata.WriteAll(), func(h highest) (highest, error) { return h.Merge(highest{cents}) })
		fmt.Println(h.cents, err)
	}
	// Output:
	// tea 350 <nil>
	// milk 120 <nil>
	// 2 <nil>
	// 700 <nil>
	// 700 <nil>
}
