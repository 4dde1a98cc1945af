// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

// operator returns a client with the credential of an operator.
func (w *hostileWorld) operator(name string) *nats.Operator {
	w.Helper()
	op, err := nats.ConnectOperator(nats.OperatorConfig{Access: w.server.Access(w.T, name), Cluster: clusterName, Name: name})
	w.must(err)
	w.Cleanup(func() { w.must(op.Close()) })
	return op
}

// TestReadOnlyOperator checks that the credential of an operator with the right to read is
// sufficient for all reads of each protocol, and for no action: the server refuses the subject of
// an action, and the nodes refuse an action on the subject of reads.
func TestReadOnlyOperator(t *testing.T) {
	t.Parallel()
	w := newHostileWorld(t)
	w.serve("before")
	ctx := t.Context()
	reader := w.operator("reader")
	members, data, shards := cluster.NewAdmin(reader), ddata.NewAdmin(reader), sharding.NewAdmin(reader)

	for action, err := range map[string]error{
		"leave": members.Leave(ctx, "a", "b"), "down": members.Down(ctx, "a", "b"), "prepare-for-shutdown": members.PrepareForShutdown(ctx, ""),
		"drain": shards.Drain(ctx, "a", "till"), "undrain": shards.Undrain(ctx, "a", "till"),
		"rebalance": func() error { _, err := shards.Rebalance(ctx, "a", "till"); return err }(),
		"move":      shards.Move(ctx, "a", "till", 1, "a"), "release": shards.Release(ctx, "a", "till", 1),
	} {
		if !errors.Is(err, transport.ErrDenied) {
			t.Errorf("%s with a credential for reads: %v, want ErrDenied", action, err)
		}
	}
	actions := []string{
		`{"command":"leave","node":"b"}`, `{"command":"down","node":"b"}`, `{"command":"prepare-for-shutdown"}`,
		`{"service":"sharding","command":"drain","type":"till"}`, `{"service":"sharding","command":"undrain","type":"till"}`, `{"service":"sharding","command":"rebalance","type":"till"}`,
		`{"service":"sharding","command":"move","type":"till","shard":1,"to":"a"}`, `{"service":"sharding","command":"release","type":"till","shard":1}`,
	}
	for _, request := range actions {
		b, err := reader.Ask(ctx, "cluster", transport.AdminRead, "a", []byte(request))
		w.must(err)
		var reply struct {
			Denied bool `json:"denied"`
		}
		if err := json.Unmarshal(b, &reply); err != nil || !reply.Denied {
			t.Errorf("%s on the subject of reads: reply %s, %v, want a refusal", request, b, err)
		}
	}
	if n := figures(t, w.sites[0].Node).AdminDenied; n != uint64(len(actions)) {
		t.Errorf("a counted %d denied requests, want %d", n, len(actions))
	}

	s, err := members.State(ctx, "a")
	if w.must(err); len(s.Members) != 2 {
		t.Errorf("State = %+v, want two members", s)
	}
	_, stats, err := data.Stats(ctx, ddata.At{Node: "a"})
	if w.must(err); len(stats) != 1 {
		t.Errorf("Stats = %+v, want one replicator", stats)
	}
	for k, failed := range data.Keys(ctx, ddata.At{Node: "a"}, "", true) {
		if w.must(failed); k.Key != "hits" {
			t.Errorf("Keys yields %+v, want hits", k)
		}
	}
	if _, err = data.Get(ctx, ddata.At{Node: "a"}, "hits", "majority"); err != nil {
		t.Errorf("Get = %v, want a value", err)
	}
	d, err := data.Diff(ctx, "", []string{"a", "b"}, 10)
	if err != nil || d.Nodes[0].Err != nil || d.Nodes[1].Err != nil {
		t.Errorf("Diff = %+v, %v, want the digests of both nodes", d, err)
	}
	regions := shards.Regions(ctx, []string{"a", "b"})
	if regions[0].Region("till") == nil || regions[1].Region("till") == nil {
		t.Errorf("Regions = %+v, want the region of each node", regions)
	}
	for shard, err := range shards.Shards(ctx, "a", "till") {
		w.must(err)
		for _, err := range shards.Entities(ctx, "a", "till", shard.Shard) {
			w.must(err)
		}
	}
	if _, err = shards.Find(ctx, "a", "till", "till-1"); err != nil {
		t.Errorf("Find = %v, want a location", err)
	}

	w.must(sharding.NewAdmin(w.operator("ops")).Drain(ctx, "b", "till"))
	w.serve("after")
}
