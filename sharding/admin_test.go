// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

// TestAdmin checks the requests of an operator: lists, the location of an entity, rebalance, drain
// and undrain.
func TestAdmin(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role, w.options.Shards, w.options.Tuning.RebalanceInterval = "library", 40, time.Hour
		all := []*host{w.start("a", "library"), w.start("b", "library"), w.start("p")}
		w.up(all...)
		op := w.network.Operator("ann")
		admin := sharding.NewAdmin(op)
		ctx := w.Context()
		for d := range 60 {
			if _, err := ask(w, all[d%3], id(d), write{}); err != nil {
				w.Fatal(err)
			}
		}
		w.join("x") // x has no region
		w.up(append(all, w.nodes["x"])...)

		nodes := admin.Regions(ctx, []string{"a", "b", "p", "x", "unknown"})
		if err := nodes[3].Err; !errors.Is(err, sharding.ErrNoRegion) {
			w.Errorf("node without a region: %v, want ErrNoRegion", err)
		}
		if err := nodes[4].Err; !errors.Is(err, transport.ErrNoNode) {
			w.Errorf("unknown node: %v, want ErrNoNode", err)
		}
		a, b, p := nodes[0].Region("diary"), nodes[1].Region("diary"), nodes[2].Region("diary")
		if a == nil || b == nil || p == nil || nodes[0].Node != all[0].Self().String() || nodes[0].Region("other") != nil {
			w.Fatalf("Regions = %+v, want the regions of a, b and p only", nodes)
		}
		if a.Entities+b.Entities != 60 || a.Shards == 0 || b.Shards == 0 || a.Total != 40 || a.Role != "library" || a.Coordinator != nodes[0].Node || p.Coordinator != nodes[0].Node {
			w.Errorf("regions: a %+v, b %+v, p %+v, want 60 entities on a and b, and the coordinator on a", a, b, p)
		}
		c := a.CoordinatorState
		if !p.Proxy || p.Shards != 0 || a.Proxy || a.Drained || b.CoordinatorState != nil || c == nil || c.Regions != 2 || c.Proxies != 1 || c.Placed != a.Shards+b.Shards || c.Phase != "active" || c.Term != 1 {
			w.Errorf("regions: a %+v (coordinator %+v), b %+v, p %+v, want a proxy p and an active coordinator on a", a, c, b, p)
		}

		running := map[string]string{} // the node of each entity
		for _, name := range []string{"a", "b", "p"} {
			var last sharding.Shard
			for s, err := range admin.Shards(ctx, name, "diary") {
				w.must(err)
				if s.Shard < last {
					w.Errorf("%s: shard %d follows shard %d, want ascending numbers", name, s.Shard, last)
				}
				last = s.Shard
				n := 0
				for id, err := range admin.Entities(ctx, name, "diary", s.Shard) {
					w.must(err)
					running[id] = name
					n++
				}
				if n != s.Entities || s.PerSecond != nil {
					w.Errorf("%s: shard %d lists %d entities, want %+v with an unknown rate of commands", name, s.Shard, n, s)
				}
			}
		}
		if len(running) != 60 {
			w.Errorf("%d entities are listed, want 60", len(running))
		}
		for d := range 60 {
			n, err := all[0].region.ShardOf(id(d))
			w.must(err)
			found, err := admin.Find(ctx, "p", "diary", id(d))
			w.must(err)
			if want := w.nodes[running[id(d)]].Self().String(); found.Shard != n || found.Home != want || !found.Running {
				w.Errorf("entity %s of shard %d: Find = %+[4]v, want it running on %[3]s", id(d), n, want, found)
			}
		}

		nowhere, elsewhere := 0, 0
		for d := 60; nowhere == 0 || elsewhere == 0; d++ {
			n, err := all[2].region.ShardOf(id(d))
			w.must(err)
			_, known, err := all[2].region.Home(ctx, n)
			w.must(err)
			found, err := admin.Find(ctx, "p", "diary", id(d))
			w.must(err)
			switch {
			case found.Running:
				w.Errorf("Find reports that %s runs, which was never started: %+v", id(d), found)
			case found.Home == "":
				nowhere++
			case !known: // the coordinator has replied with the home
				elsewhere++
			}
			p, err := ask(w, all[1], id(d), write{})
			w.must(err)
			if found, err = admin.Find(ctx, "p", "diary", id(d)); err != nil || found.Home != w.nodes[p.Node].Self().String() || !found.Running {
				w.Errorf("entity %s on %s: Find = %+v, %v, want its home and a running entity", id(d), p.Node, found, err)
			}
		}

		last := w.start("c", "library")
		w.up(append(all, w.nodes["x"], last)...)
		w.must(last.region.AwaitReady(ctx))
		if _, err := admin.Rebalance(ctx, "b", "diary"); !errors.Is(err, sharding.ErrNoCoordinator) {
			w.Errorf("Rebalance on b = %v, want ErrNoCoordinator", err)
		}
		moved := 0
		for {
			n, err := admin.Rebalance(ctx, "a", "diary")
			w.must(err)
			if n == 0 {
				break
			}
			moved += n
			w.sleep(10 * time.Second)
		}
		now := admin.Regions(ctx, []string{"c"})[0].Region("diary")
		if moved == 0 || now == nil || now.Shards < 10 {
			w.Errorf("%d shards moved, and c hosts %+v, want at least 10 shards", moved, now)
		}

		w.must(admin.Drain(ctx, "a", "diary"))
		w.must(admin.Drain(ctx, "p", "diary"))
		w.sleep(10 * time.Second)
		if now := admin.Regions(ctx, []string{"a"})[0].Region("diary"); now.Shards != 0 || !now.Drained || now.CoordinatorState == nil {
			w.Errorf("after Drain: %+v, want a drained region without shards", now)
		}
		if now := admin.Regions(ctx, []string{"p"})[0].Region("diary"); now.Drained {
			w.Errorf("after Drain of a proxy: %+v, want an undrained proxy", now)
		}
		for _, call := range []func() error{
			func() error { return admin.Drain(ctx, "a", "other") },
			func() error { return admin.Drain(ctx, "x", "diary") },
			func() error { _, err := admin.Find(ctx, "b", "other", "d1"); return err },
		} {
			if err := call(); !errors.Is(err, sharding.ErrNoRegion) {
				w.Errorf("request without a region: %v, want ErrNoRegion", err)
			}
		}
		var answer adminReply
		for _, request := range []string{`{"service":"sharding","command":"dance","type":"diary"}`, `{"service":"sharding","type":7}`} {
			out, err := op.Ask(ctx, "sharding", transport.AdminRead, "a", []byte(request))
			w.must(err)
			if err := json.Unmarshal(out, &answer); err != nil || answer.Error == "" {
				w.Errorf("invalid request %s: reply %s, want an error", request, out)
			}
		}
	})
}

// adminRequest and adminReply are the fields of requests and replies that the tests use.
type (
	adminRequest struct {
		Command string         `json:"command"`
		Behind  sharding.Shard `json:"behind"`
		After   string         `json:"after"`
	}
	adminReply struct {
		Error    string                 `json:"error,omitempty"`
		Node     string                 `json:"node,omitempty"`
		Regions  []sharding.AdminRegion `json:"regions,omitempty"`
		Shards   []sharding.ShardCount  `json:"shards,omitempty"`
		Entities []string               `json:"entities,omitempty"`
		More     bool                   `json:"more,omitempty"`
	}
)

// fake is a transport.AdminClient whose replies come from a function.
type fake func(r adminRequest) adminReply

func (f fake) Ask(_ context.Context, _ string, _ transport.AdminRight, _ string, request []byte) ([]byte, error) {
	var r adminRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	return json.Marshal(f(r))
}

func (f fake) Close() error { return nil }

// TestAdminPages checks that lists are read page by page, and that a list that does not end is an
// error.
func TestAdminPages(t *testing.T) {
	t.Parallel()
	admin := sharding.NewAdmin(fake(func(r adminRequest) (a adminReply) {
		switch r.Command {
		case "regions":
			n, _ := strconv.Atoi(strings.TrimPrefix(r.After, "t"))
			a.Regions, a.More = []sharding.AdminRegion{{Type: "t" + strconv.Itoa(n+1)}}, n < 4
		case "shards":
			a.Shards, a.More = []sharding.ShardCount{{Shard: r.Behind + 2}}, r.Behind < 9
		case "entities":
			a.Entities, a.More = []string{"a", "b"}, true
		default:
		}
		return a
	}))
	if n := admin.Regions(t.Context(), []string{"a"})[0]; n.Err != nil || len(n.Regions) != 5 {
		t.Errorf("Regions = %+v, want 5 regions", n)
	}
	var shards []sharding.Shard
	for s, err := range admin.Shards(t.Context(), "a", "t") {
		if err != nil {
			t.Fatal(err)
		}
		shards = append(shards, s.Shard)
	}
	if !slices.Equal(shards, []sharding.Shard{2, 5, 8, 11}) {
		t.Errorf("Shards = %v, want [2 5 8 11]", shards)
	}
	var failed error
	for _, err := range admin.Entities(t.Context(), "a", "t", 1) {
		failed = err
	}
	if failed == nil || !strings.Contains(failed.Error(), "empty page") {
		t.Errorf("list without an end: %v, want an error about an empty page", failed)
	}
}
