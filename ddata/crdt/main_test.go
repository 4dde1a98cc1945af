// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// self returns the Self of a node, whose clock shows one second.
func self(tb testing.TB, name string) *crdt.Self {
	tb.Helper()
	s, err := crdt.NewSelf(node(name))
	if err != nil {
		tb.Fatal(err)
	}
	s.Advance(time.UnixMilli(1000))
	return s
}

func node(name string) identity.Node { return identity.Node{Name: name, UID: uint64(len(name)) + 100} }

// must returns v. It is for calls of the package under test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// value converts a typed value to the form that a replicator stores.
func value(v any) crdt.Value { return must((*crdt.Types)(nil).Value(v)) }

// list formats elements in their order.
func list[E any](elements []E, err error) string {
	if err != nil {
		return err.Error()
	}
	texts := make([]string, len(elements))
	for i, e := range elements {
		texts[i] = fmt.Sprint(e)
	}
	return strings.Join(texts, " ")
}

// bytesOf returns the encoded form of a value.
func bytesOf(v interface {
	AppendBinary(dst []byte) ([]byte, error)
},
) string {
	return string(must(v.AppendBinary(nil)))
}

func showSets(m crdt.ORMultiMap[string, string]) string {
	var texts []string
	for e, err := range m.All() {
		if err != nil {
			return err.Error()
		}
		texts = append(texts, e.Key+":{"+list(e.Value.Elements())+"}")
	}
	return strings.Join(texts, " ")
}
