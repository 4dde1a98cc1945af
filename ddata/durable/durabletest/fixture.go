// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durabletest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/refold-io/refold/ddata/durable"
)

func carts() durable.ID { return durable.ID{Node: "a:1", Replicator: "carts"} }

// fixture is the environment of a check.
type fixture struct {
	testing.TB

	cfg Config
	ctx context.Context //nolint:containedctx // as in testing.T, for the time of one check
	o   durable.Opener
}

// open opens a store, or fails the check. The store is closed at the end of the check.
func (f *fixture) open(id durable.ID) durable.Store {
	f.Helper()
	s, err := f.o.Open(f.ctx, id)
	if err != nil {
		f.Fatalf("Open(%v): %v", id, err)
	}
	f.Cleanup(func() { _ = s.Close() })
	return s
}

func (f *fixture) wantOpenError(id durable.ID, is func(error) bool, want string) {
	f.Helper()
	s, err := f.o.Open(f.ctx, id)
	if err == nil {
		_ = s.Close()
	}
	if err == nil || !is(err) {
		f.Errorf("Open(%v): %v, want %s", id, err, want)
	}
}

func (f *fixture) close(s durable.Store) {
	f.Helper()
	if err := s.Close(); err != nil {
		f.Fatalf("Close: %v", err)
	}
}

func (f *fixture) reopen(s durable.Store) durable.Store {
	f.Helper()
	f.close(s)
	return f.open(carts())
}

func (f *fixture) write(s durable.Store, records ...durable.Record) {
	f.Helper()
	if err := s.Write(f.ctx, records); err != nil {
		f.Fatalf("Write(%s): %v", show(records), err)
	}
}

func (f *fixture) load(s durable.Store) []durable.Record {
	f.Helper()
	records, err := f.tryLoad(s)
	if err != nil {
		f.Fatalf("Load: %v", err)
	}
	return records
}

func (f *fixture) tryLoad(s durable.Store) (records []durable.Record, err error) {
	for r, lerr := range s.Load(f.ctx) {
		if err != nil {
			f.Errorf("Load yielded %q, %v after an error", r.Key, lerr)
		}
		if err = lerr; err == nil {
			records = append(records, r)
		} else if r.Key != "" || r.Data != nil {
			f.Errorf("Load yielded %q together with an error: %v", r.Key, err)
		}
	}
	return records, err
}

func (f *fixture) want(s durable.Store, subject string, want ...durable.Record) {
	f.Helper()
	if got := f.load(s); !slices.EqualFunc(got, want, equal) {
		f.Errorf("%s: Load yielded %s, want %s", subject, show(got), show(want))
	}
}

func equal(a, b durable.Record) bool { return a.Key == b.Key && bytes.Equal(a.Data, b.Data) }

func put(key, data string) durable.Record { return durable.Record{Key: key, Data: []byte(data)} }

// show formats records with limited length.
func show(records []durable.Record) string {
	var b bytes.Buffer
	for i, r := range records {
		if i == 10 {
			fmt.Fprintf(&b, " ... (%d)", len(records))
			break
		}
		fmt.Fprintf(&b, " %.20q=%.20q", r.Key, r.Data)
		if len(r.Data) > 20 {
			fmt.Fprintf(&b, "(%d)", len(r.Data))
		}
	}
	return "[" + string(bytes.TrimSpace(b.Bytes())) + "]"
}

// content is the expected content of a store.
type content map[string]string

func (c content) records() []durable.Record {
	var all []durable.Record
	for _, key := range slices.Sorted(maps.Keys(c)) {
		all = append(all, put(key, c[key]))
	}
	return all
}

// random returns a function that returns n incompressible bytes.
func random(seed byte) func(n int) []byte {
	source := rand.NewChaCha8([32]byte{seed})
	return func(n int) []byte {
		b := make([]byte, n)
		_, _ = source.Read(b) // Read never fails
		return b
	}
}
