// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command counter is an example of sharding: counters that are spread over three nodes. A counter that
// was not used for some time leaves memory. Its next command brings it back.
//
//	go run ./examples/counter
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/refold-io/refold/codec"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/internal/nodes"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
)

type (
	// Change increments or decrements a Counter. The reply is the new value.
	Change struct {
		es.Command[Counter, int]
		By int
	}
	// Get returns the value of a Counter.
	Get struct{ es.Command[Counter, int] }
	// Changed is the event of a Counter.
	Changed struct{ By int }
	// Counter is the state of a counter.
	Counter struct{ Value int }

	// Context is the context of a handler of a Counter.
	Context[R any] = es.Context[Counter, Changed, R]
	// Decision is the result of a handler of a Counter.
	Decision[R any] = es.Decision[Counter, Changed, R]
	// Effect is the result of a signal's handler of a Counter.
	Effect = es.Effect[Counter, Changed, es.None]
)

// idle is how long a counter stays in memory without a command.
const idle = 200 * time.Millisecond

// Change decides which event a change leads to.
func (c *Counter) Change(ctx *Context[int], m Change) Decision[int] {
	return ctx.Persist(Changed{m.By}).ReplyFunc(func() int { return c.Value })
}

// Get replies with the value.
func (c *Counter) Get(ctx *Context[int], _ Get) Decision[int] { return ctx.Reply(c.Value) }

// Apply changes the state and does nothing else.
func (c *Counter) Apply(e Changed) { c.Value += e.By }

// started sets the receive time-out of each new instance.
func (*Counter) started(ctx *Context[es.None], _ es.RecoveryCompleted) Effect {
	return ctx.ReceiveTimeout(idle)
}

// unused lets a counter leave memory. Commands that arrive meanwhile wait for its next instance.
func (*Counter) unused(ctx *Context[es.None], _ es.ReceiveTimeout) Effect { return ctx.Passivate() }

// CounterType describes the counters.
var CounterType = es.Type[Counter, Changed]{
	Name:     "counter",
	Commands: es.Commands(es.On("change", (*Counter).Change), es.On("get", (*Counter).Get)),
	Signals:  es.Signals(es.OnSignal((*Counter).started), es.OnSignal((*Counter).unused)),
	Apply:    (*Counter).Apply,
	Events:   codec.Types(codec.Name[Changed]("changed")),
}

func run(ctx context.Context) (err error) {
	c, err := nodes.Start(ctx, "node", 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	db, err := inmem.Open() // all nodes share a database: in production PostgreSQL
	if err != nil {
		return err
	}
	var regions []*sharding.Region[Counter]
	for _, node := range c.Nodes {
		rt, failed := es.Open(es.Config{Store: db}) //nolint:contextcheck // the runtime outlives the call
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, rt.Close(ctx)) }()
		region, failed := sharding.Host(ctx, node, rt, CounterType, sharding.Options{Shards: 30})
		if failed != nil {
			return failed
		}
		regions = append(regions, region)
	}
	for i, by := range []int{+1, +1, -1, +1} {
		n := i % len(regions)
		value, failed := es.Ask(ctx, regions[n].Ref("123"), Change{By: by})
		if failed != nil {
			return failed
		}
		fmt.Printf("node-%d: counter 123 %+d = %d\n", n, by, value)
	}
	for running(ctx, regions) > 0 {
		<-time.After(10 * time.Millisecond)
	}
	fmt.Println("counter 123 has left memory")
	value, err := es.Ask(ctx, regions[2].Ref("123"), Get{})
	fmt.Printf("node-2: counter 123 = %d\n", value)
	return err
}

// running returns the number of counters in memory on all nodes.
func running(ctx context.Context, regions []*sharding.Region[Counter]) (n int) {
	for _, r := range regions {
		state, err := r.State(ctx)
		if err != nil {
			continue // the node has ended
		}
		for _, s := range state.Shards {
			n += len(s.Entities)
		}
	}
	return n
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
