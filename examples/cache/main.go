// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command cache is an example of replicated data: a cache of pages on all nodes. A page that no node
// has read for some time expires everywhere.
//
//	go run ./examples/cache
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/examples/internal/nodes"
)

// cache holds pages that are expensive to render.
type cache struct{ replicator *ddata.Replicator }

type page = crdt.LWWRegister[string]

func keyOf(name string) ddata.Key[page] { return ddata.Key[page]("page-" + name) }

// get returns a page. It renders the page if this node does not have it. If two nodes render the page
// at once, the last result wins.
func (c cache) get(ctx context.Context, name string, render func() string) (string, error) {
	if p, err := ddata.Get(ctx, c.replicator, keyOf(name), ddata.ReadLocal()); err == nil {
		return p.Value()
	}
	p, err := ddata.Update(ctx, c.replicator, keyOf(name), ddata.WriteAll(), func(p page) (page, error) {
		return p.Set(c.replicator.Self(), render())
	})
	if err != nil {
		return "", err
	}
	return p.Value()
}

func run(ctx context.Context) (err error) {
	c, err := nodes.Start(ctx, "web", 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	replicators, err := c.Replicate(ctx, ddata.Config{
		Expire: map[string]time.Duration{"page-*": 5 * time.Second}, GossipInterval: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	show := func(node int, content string) error {
		rendered := "found"
		text, failed := cache{replicators[node]}.get(ctx, "home", func() string { rendered = "rendered"; return content })
		fmt.Printf("web-%d: %q, %s\n", node, text, rendered)
		return failed
	}
	if err = errors.Join(show(0, "Welcome"), show(1, "Welcome")); err != nil {
		return err
	}
	for _, r := range replicators {
		for len(r.Keys()) > 0 { // Keys does not count as a use of the page
			<-time.After(10 * time.Millisecond)
		}
	}
	fmt.Println("the page expires on both nodes")
	return show(1, "Welcome back")
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
