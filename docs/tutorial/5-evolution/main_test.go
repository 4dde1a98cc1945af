// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/refold-io/refold/docs/tutorial/order"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// endregion

// writeV1 stores an order with the code of the first step.
func writeV1(ctx context.Context, dir string) (err error) {
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rt, err := es.Open(es.Config{Store: db})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	orders, err := es.Host(rt, order.Type)
	if err != nil {
		return err
	}
	_, err = es.Ask(ctx, orders.Ref("42"), order.Add{Product: "tea", Units: 2, Price: 350})
	return err
}

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "evolution-")
	if err == nil {
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		err = writeV1(ctx, dir)
	}
	if err == nil {
		err = run(ctx, dir)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// order 42 has 2 units for 700 cents EUR
	// the total of order 42 is 820 cents
	// in another currency: all units of an order have the same currency
}

// The second release reads the event of the first one in its new form, and stores its own events
// under the new name and version.
func TestReadsFirstRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := writeV1(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	db, err := leveldb.Open(dir, leveldb.Config{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // nothing is written
	var manifests []string
	var decoded []any
	for e, failed := range db.Journal().Replay(t.Context(), "order|42", 1, journal.MaxSequenceNr) {
		if failed != nil {
			t.Fatal(failed)
		}
		manifests = append(manifests, e.Manifest)
		if decoded, err = events.DecodeAppend(decoded, e.Manifest, e.Payload); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"added", "item-added@2"}; !slices.Equal(manifests, want) {
		t.Errorf("the stored events are %q, want %q", manifests, want)
	}
	want := []any{ItemAdded{"tea", 2, 350, "EUR"}, ItemAdded{"milk", 1, 120, "EUR"}}
	if !slices.Equal(decoded, want) {
		t.Errorf("the events are read as %v, want %v", decoded, want)
	}
}
