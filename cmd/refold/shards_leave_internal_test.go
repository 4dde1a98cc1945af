// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

// pair is a cluster of two members. Member a hosts all shards. Member b has the given status. It
// hosts the shards in the field b, or has ended if the field is nil.
type pair struct {
	status string
	b      *sharding.AdminRegion
}

func (p pair) Ask(_ context.Context, _ string, _ transport.AdminRight, node string, request []byte) ([]byte, error) {
	if !strings.Contains(string(request), `"service":"sharding"`) {
		return json.Marshal(map[string]any{"state": &cluster.Summary{Self: "a#1", Members: []cluster.SummaryMember{
			{Node: "a#1", Status: "up"}, {Node: "b#2", Status: p.status}, {Node: "c#3", Status: "joining"}, {Node: "d#4", Status: "down"},
		}}})
	}
	a := sharding.AdminRegion{Type: "t", Total: 9, Shards: 1, Coordinator: "a#1", CoordinatorState: &sharding.AdminCoordinator{Term: 1, Phase: "active"}}
	switch {
	case node == "a" && strings.Contains(string(request), `"shards"`):
		return json.Marshal(map[string]any{"shards": []sharding.ShardCount{{Shard: 7, Entities: 2}}})
	case node == "a":
		return json.Marshal(map[string]any{"node": "a#1", "regions": []sharding.AdminRegion{a}})
	case node == "b" && p.b != nil:
		return json.Marshal(map[string]any{"node": "b#2", "regions": []sharding.AdminRegion{*p.b}})
	}
	return nil, fmt.Errorf("%w: %s", transport.ErrNoNode, node)
}

func (pair) Close() error { return nil }

// A node is drained only if another node can host its shards. A leaving node cannot host shards.
func TestDrainWithoutOtherHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pair

		takes bool
	}{
		"up":         {pair{"up", &sharding.AdminRegion{Type: "t", Total: 9}}, true},
		"silent":     {pair{"up", nil}, false},
		"leaving":    {pair{"leaving", &sharding.AdminRegion{Type: "t", Total: 9}}, false},
		"drained":    {pair{"up", &sharding.AdminRegion{Type: "t", Total: 9, Drained: true}}, false},
		"proxy":      {pair{"up", &sharding.AdminRegion{Type: "t", Total: 9, Proxy: true}}, false},
		"refused":    {pair{"up", &sharding.AdminRegion{Type: "t", Total: 8, Mismatch: "x: y"}}, false},
		"other type": {pair{"up", &sharding.AdminRegion{Type: "other", Total: 9}}, false},
	} {
		common, n := &shardsCommand{Type: "t"}, newNodes(c.pair)
		all, types, err := common.regions(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = (&shardsDrainCommand{Node: "a"}).types(all, types); (err == nil) != c.takes || err != nil && !strings.Contains(err.Error(), "no other responding node") {
			t.Errorf("%s: drain of a: error %v, want an error only if no other node can host the shards", name, err)
		}
		err = (&shardsUndrainCommand{Node: "b"}).undrain(t.Context(), &operator.Env{Stdout: io.Discard}, n, all, types)
		if leaves := err != nil && strings.Contains(err.Error(), "b is leaving the cluster"); leaves != (name == "leaving") {
			t.Errorf("%s: undrain of b: error %v, want one only for a leaving node", name, err)
		}
	}
}

// A leaving node need not respond. The table notes that the node leaves, and the exit status is 0.
// JSON contains the error.
func TestShardsOfLeavingNode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pair

		row, json string
		want      error
	}{
		"up, no reply":     {pair{"up", nil}, "b     -       -         -        -        sharding: regions: transport: no node", `{"name":"b","error":"sharding: regions`, operator.ErrProblems},
		"leaving":          {pair{"leaving", nil}, "b     -       -         -        -        leaves\n", `{"name":"b","leaves":true,"error":"sharding: regions`, nil},
		"exiting":          {pair{"exiting", nil}, "b     -       -         -        -        leaves\n", `{"name":"b","leaves":true,"error":"sharding: regions`, nil},
		"with region":      {pair{"leaving", &sharding.AdminRegion{Type: "t", Total: 9, Drained: true}}, "b     0       0         0        0        leaves\n", `{"name":"b","type":"t"`, nil},
		"other region":     {pair{"exiting", &sharding.AdminRegion{Type: "other"}}, "b     -       -         -        -        leaves\n", `{"name":"b","leaves":true}`, nil},
		"leaving, refused": {pair{"leaving", &sharding.AdminRegion{Type: "t", Total: 9, Mismatch: "x: y"}}, "leaves, refused: y\n", `"leaves":true`, nil},
		"up, refused":      {pair{"up", &sharding.AdminRegion{Type: "t", Total: 9, Mismatch: "x: y"}}, "refused: y", `"mismatch"`, operator.ErrProblems},
		"up, valid":        {pair{"up", &sharding.AdminRegion{Type: "t", Total: 9, Coordinator: "a#1"}}, "b     0       0         0        0        -\n", `{"name":"b","type":"t"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			common, n := &shardsCommand{Type: "t"}, newNodes(c.pair)
			var text, object, errs bytes.Buffer
			if err := (&shardsListCommand{}).list(t.Context(), &text, common, n); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("list: error %v, want %v", err, c.want)
			}
			if !strings.Contains(text.String(), c.row) || strings.Contains(text.String(), "\nc ") || strings.Contains(text.String(), "\nd ") {
				t.Errorf("list printed\n%s\nwant the row %q, and no rows of c and d", &text, c.row)
			}
			if err := (&shardsListCommand{JSON: true}).list(t.Context(), &object, common, n); !errors.Is(err, c.want) || !strings.Contains(object.String(), c.json) {
				t.Errorf("list --json printed %s, error %v; want %s, %v", &object, err, c.json, c.want)
			}
			all, types, err := common.regions(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			err = (&shardsEntitiesCommand{}).list(t.Context(), &operator.Env{Stdout: io.Discard, Stderr: &errs}, n, all, types)
			if silent := strings.Contains(errs.String(), "b: sharding: regions"); silent != (name == "up, no reply") || silent != errors.Is(err, operator.ErrProblems) || !silent && err != nil {
				t.Errorf("entities: error %v, printed %s; want ErrProblems only for a node that is up and does not reply", err, &errs)
			}
		})
	}
}
