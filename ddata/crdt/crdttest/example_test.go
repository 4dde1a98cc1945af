// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/crdt/crdttest"
)

// Total is a wrong counter: Merge adds both counts, even if they come from the same node.
type Total struct{ n uint64 }

// Merge counts twice.
func (t Total) Merge(other Total) (Total, error) { return Total{t.n + other.n}, nil }

// AppendBinary appends the count.
func (t Total) AppendBinary(dst []byte) ([]byte, error) { return binary.AppendUvarint(dst, t.n), nil }

func decodeTotal(data []byte) (Total, error) {
	n, size := binary.Uvarint(data)
	if size != len(data) {
		return Total{}, errors.New("no number")
	}
	return Total{n}, nil
}

// Check prints the shortest history that violates a law.
func ExampleCheck() {
	types, err := crdt.NewTypes(nil, crdt.Define("total", decodeTotal))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = crdttest.Check(crdttest.Config[Total]{
		Types:  types,
		Change: func(_ *rand.Rand, _ *crdt.Self, t Total) (Total, error) { return Total{t.n + 1}, nil },
		Read:   func(t Total) any { return t.n },
	}, crdttest.Idempotent)
	for line := range strings.Lines(fmt.Sprint(err)) {
		fmt.Println(strings.TrimSpace(line))
	}
	// Output:
	// Idempotent is violated, seed 1, history 0:
	// c changes to 1
	// a+a and a differ:
	// 2 (010d05746f74616c000102)
	// 1 (010d05746f74616c000101)
}
