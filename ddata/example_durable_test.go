// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/plugins/inmem"
)

// Durable keys survive a stop of all nodes. Here the disk is in memory; leveldb.NewDurable(dir,
// leveldb.DurableConfig{}) stores them in a directory.
func ExampleConfig_durable() {
	ctx := context.Background()
	cfg := ddata.Config{Durable: []string{"limit-*"}, Opener: &inmem.Durable{}}

	a, _, end := pairOf(ctx, cfg)
	limit, hits := ddata.Key[crdt.LWWRegister[int]]("limit-ann"), ddata.Key[crdt.GCounter]("hits")
	_, err := ddata.Update(ctx, a, limit, ddata.WriteAll(), func(l crdt.LWWRegister[int]) (crdt.LWWRegister[int], error) { return l.Set(a.Self(), 100) })
	fmt.Println(err)
	_, err = ddata.Update(ctx, a, hits, ddata.WriteAll(), func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(a.Self(), 1), nil })
	fmt.Println(err)
	end()

	a, _, end = pairOf(ctx, cfg)
	defer end()
	fmt.Println(a.Keys(), a.Durable("limit-ann"))
	l, err := ddata.Get(ctx, a, limit, ddata.ReadLocal())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(l.Value())
	// Output:
	// <nil>
	// <nil>
	// [limit-ann] true
	// 100 <nil>
}
