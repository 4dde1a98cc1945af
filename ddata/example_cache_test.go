// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// cache holds pages that are expensive to render, on all nodes, as long as they are in use.
type cache struct{ replicator *ddata.Replicator }

type page = crdt.LWWRegister[string]

// get returns a page. It renders the page if no node has it. Two nodes may render the page concurrently: the last result wins.
func (c cache) get(ctx context.Context, name string, render func() string) (string, error) {
	key := ddata.Key[page]("page-" + name)
	if p, err := ddata.Get(ctx, c.replicator, key, ddata.ReadLocal()); err == nil {
		return p.Value()
	}
	p, err := ddata.Update(ctx, c.replicator, key, ddata.WriteLocal(), func(p page) (page, error) {
		return p.Set(c.replicator.Self(), render())
	})
	if err != nil {
		return "", err
	}
	return p.Value()
}

// A cache whose pages expire on all nodes when no node has read them for some time.
func Example_cache() {
	ctx := context.Background()
	a, _, end := pairOf(ctx, ddata.Config{Expire: map[string]time.Duration{"page-*": 500 * time.Millisecond}, GossipInterval: 100 * time.Millisecond})
	defer end()

	pages := cache{a}
	for range 2 { // the second call usually finds the page
		fmt.Println(pages.get(ctx, "home", func() string { return "<h1>Welcome</h1>" }))
	}
	for len(a.Keys()) > 0 { // Keys does not count as a use
		<-time.After(10 * time.Millisecond)
	}
	fmt.Println(pages.get(ctx, "home", func() string { return "<h1>Welcome back</h1>" }))
	// Output:
	// <h1>Welcome</h1> <nil>
	// <h1>Welcome</h1> <nil>
	// <h1>Welcome back</h1> <nil>
}
