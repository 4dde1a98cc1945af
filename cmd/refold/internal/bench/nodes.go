// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/cmd/refold/internal/fleet"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

const (
	// nodeStableAfter is StableAfter of the downing strategy.
	nodeStableAfter = 5 * time.Second
	// nodePatience is the time after which a step has failed.
	nodePatience = 2 * time.Minute
	// quietTime is the time over which the CPU use of an idle cluster is measured.
	quietTime = 20 * time.Second

	maxStart, maxDowned, maxProcessor = 5, 15, 1
)

// processes measures a cluster of three processes over a NATS server in this one: the time until
// all are Up, the cost of an idle node, and the time until a killed node is Down.
func processes(ctx context.Context, b *run) ([]Result, error) {
	var started, quiet, downed []float64
	for i := range max(1, b.settings.Rounds) {
		b.progress("round %d of %d", i+1, b.settings.Rounds)
		if err := b.cluster(ctx, &started, &quiet, &downed); err != nil {
			return nil, err
		}
	}
	row := func(values []float64, unit string, goal float64, settings string) Result {
		return atMost(slices.Max(values), unit, goal, fmt.Sprintf("%s, worst of %d", settings, len(values)), "")
	}
	return []Result{
		row(started, "s to all up", maxStart, "3 processes, embedded NATS, from the start of the first"),
		row(quiet, "% of a core", maxProcessor, fmt.Sprintf("3 processes, each when nothing happens for %v", b.quietTime())),
		row(downed, "s to downed", maxDowned, fmt.Sprintf("3 processes, from SIGKILL of one until another marks it as down, stable-after %v", nodeStableAfter)),
	}, nil
}

// quietTime is shorter in a trial run.
func (b *run) quietTime() time.Duration {
	return max(time.Second, quietTime/time.Duration(max(1, b.settings.Scale)))
}

// cluster runs three processes once.
func (b *run) cluster(ctx context.Context, started, quiet, downed *[]float64) (err error) {
	server, err := embedded.Start(embedded.Config{}) //nolint:contextcheck // the server lives until Close
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	c := &nodes{fleet: fleet.New(b.settings.Node, io.Discard), views: map[string]*fleet.View{}, cpu: map[string][]time.Duration{}}
	defer c.fleet.Close()
	names := []string{"a", "b", "c"}
	began := time.Now()
	for _, name := range names {
		if _, err = c.fleet.Start(fleet.Node{
			Name: name, Cluster: "bench", Seeds: names, Access: server.Access(), Downing: downing.Settings{StableAfter: nodeStableAfter},
		}); err != nil {
			return err
		}
	}
	if err = c.until(ctx, func() bool {
		return !slices.ContainsFunc(names, func(n string) bool { return c.views[n] == nil || c.views[n].Up() != len(names) })
	}); err != nil {
		return err
	}
	*started = append(*started, time.Since(began).Seconds())
	percent, err := c.processor(ctx, names, b.quietTime())
	if err != nil {
		return err
	}
	*quiet = append(*quiet, percent)
	victim := c.ids["c"]
	if err := c.fleet.Kill("c"); err != nil {
		return err
	}
	killed := time.Now()
	delete(c.views, "c")
	if err := c.until(ctx, func() bool { return c.down(victim) }); err != nil {
		return err
	}
	*downed = append(*downed, time.Since(killed).Seconds())
	return nil
}

// nodes is a fleet and the latest report of each node.
type nodes struct {
	fleet *fleet.Fleet
	views map[string]*fleet.View
	ids   map[string]identity.Node
	cpu   map[string][]time.Duration
}

// until reads reports until a condition holds.
func (c *nodes) until(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for !holds() {
		r, err := c.fleet.Next(ctx)
		switch {
		case err != nil:
			return err
		case r.Ended != "":
			return fmt.Errorf("node %v has ended: %s", r.Node, r.Ended)
		case r.View != nil:
			c.views[r.Node.Name] = r.View
			if c.ids == nil {
				c.ids = map[string]identity.Node{}
			}
			c.ids[r.Node.Name] = r.Node
		case r.CPU != nil:
			c.cpu[r.Node.Name] = append(c.cpu[r.Node.Name], *r.CPU)
		}
	}
	return nil
}

// processor returns the largest share of a core that a node uses, in percent.
func (c *nodes) processor(ctx context.Context, names []string, length time.Duration) (percent float64, err error) {
	ask := func(times int) error {
		for _, name := range names {
			if err := c.fleet.Say(name, fleet.CPU); err != nil {
				return err
			}
		}
		return c.until(ctx, func() bool {
			return !slices.ContainsFunc(names, func(n string) bool { return len(c.cpu[n]) < times })
		})
	}
	if err := ask(1); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := pause(ctx, length); err != nil {
		return 0, err
	}
	if err := ask(2); err != nil {
		return 0, err
	}
	for _, name := range names {
		used := c.cpu[name][1] - c.cpu[name][0]
		percent = max(percent, 100*used.Seconds()/time.Since(began).Seconds())
	}
	return percent, nil
}

// down reports whether some node reports another one as Down or removed.
func (c *nodes) down(n identity.Node) bool {
	for _, v := range c.views {
		if !v.Has(n) {
			return true
		}
		for _, m := range v.Members {
			if m.Node == n && m.Status == "down" {
				return true
			}
		}
	}
	return false
}

// reply is the result of an order.
type reply[A any] struct {
	Err    string `json:",omitempty"`
	Answer A
}

// obey reads orders from in, one JSON object each, and writes the result of each to out, until in
// ends.
func obey[O, A any](in io.Reader, out io.Writer, do func(*O) (A, error)) error {
	orders, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o O
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		var r reply[A]
		var err error
		if r.Answer, err = do(&o); err != nil {
			r.Err = err.Error()
		}
		if err = replies.Encode(r); err != nil {
			return fmt.Errorf("answer an order: %w", err)
		}
	}
}

// say sends an order to a process and waits for the result.
func say[A any](h *hand, do string, order any) (A, error) {
	var r reply[A]
	err := h.out.Encode(order)
	if err == nil {
		err = h.in.Decode(&r)
	}
	if err == nil && r.Err != "" {
		err = errors.New(r.Err)
	}
	if err != nil {
		err = fmt.Errorf("%s of node %s: %w", do, h.name, err)
	}
	return r.Answer, err
}

// atOnce runs a function for all processes concurrently.
func atOnce[O, A any](hands []*hand, do func(*hand, O) (A, error), order func(i int) O) ([]A, error) {
	answers := make([]A, len(hands))
	errs := make(chan error, len(hands))
	for i, h := range hands {
		go func() {
			var err error
			answers[i], err = do(h, order(i))
			errs <- err
		}()
	}
	var all []error
	for range hands {
		all = append(all, <-errs)
	}
	return answers, errors.Join(all...)
}

// startNode starts the node of such a process. Stop ends it.
func startNode(self identity.Node, access nats.Access, cfg cluster.Config) (*cluster.Node, error) {
	carrier, err := nats.Connect(nats.Config{Access: access, Cluster: "bench", Self: self, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	cfg.Cluster, cfg.Carrier = "bench", carrier
	return cluster.Start(cfg)
}
