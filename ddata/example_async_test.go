// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// order is a request of a customer. The function of an update carries it to the result.
type order struct {
	customer string
	item     string
}

// A loop that handles orders does not wait for replicas. The result of each update returns to the
// loop together with its order.
func ExampleUpdateAsync() {
	ctx := context.Background()
	a, _, end := pair(ctx)
	defer end()

	type result struct {
		order order
		items crdt.ORSet[string]
		err   error
	}
	results := make(chan result, 2)
	for _, o := range []order{{"ann", "tea"}, {"bob", "milk"}} {
		key := ddata.Key[crdt.ORSet[string]]("cart-" + o.customer)
		ddata.UpdateAsync(ctx, a, key, ddata.WriteAll(), func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
			return s.Add(a.Self(), o.item)
		}, func(items crdt.ORSet[string], err error) {
			results <- result{o, items, err}
		})
	}
	for range 2 {
		r := <-results
		items, err := r.items.Elements()
		fmt.Println(r.order.customer, items, r.err, err)
	}
	// Unordered output:
	// ann [tea] <nil> <nil>
	// bob [milk] <nil> <nil>
}
