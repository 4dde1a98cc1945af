// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// load maps each node to its load: each node writes its own figure, and the last write wins.
const load = ddata.Key[crdt.LWWMap[string, float64]]("load")

// publish stores the load of a node.
func publish(ctx context.Context, r *ddata.Replicator, busy float64) error {
	_, err := ddata.Update(ctx, r, load, ddata.WriteLocal(), func(m crdt.LWWMap[string, float64]) (crdt.LWWMap[string, float64], error) {
		return m.Put(r.Self(), r.Node().Self().Name, busy)
	})
	return err
}

// Metrics of all nodes, available on all nodes.
func Example_metrics() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	fmt.Println(publish(ctx, a, 0.75), publish(ctx, b, 0.25))
	for change := range b.Subscribe(ctx, load.Any()) {
		m, err := load.Value(change)
		if err != nil {
			fmt.Println(err)
			return
		}
		if m.Len() < 2 {
			continue // b has not received the entry of a yet
		}
		for e, err := range m.All() {
			fmt.Println(e.Key, e.Value, err)
		}
		return
	}
	// Output:
	// <nil> <nil>
	// a:1 0.75 <nil>
	// b:1 0.25 <nil>
}
