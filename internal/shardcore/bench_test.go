// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// BenchmarkSend measures a message to a running entity on this node, and to one on another node.
func BenchmarkSend(b *testing.B) {
	m, err := shardcore.New(config())
	if err != nil {
		b.Fatal(err)
	}
	d := &driver{m: m}
	d.setMembers(identity.Up, "b", "a")
	d.receive(coordinator.Message{Kind: coordinator.RegisterAck})
	d.receive(coordinator.Message{Kind: coordinator.Host, Round: 1, Shards: []shardcore.Shard{1}})
	d.receive(coordinator.Message{Kind: coordinator.Homes, Round: 1, Homes: []coordinator.Home{{Node: node("b"), Shards: []shardcore.Shard{2}}}})
	for name, s := range map[string]shardcore.Shard{"here": 1, "there": 2} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			in := shardcore.Send{Shard: s, Message: message()}
			for b.Loop() {
				if out := d.step(in); len(out.Actions)+len(out.Send) == 0 {
					b.Fatal("the message waits")
				}
			}
		})
	}
	b.Run("arrived", func(b *testing.B) {
		b.ReportAllocs()
		frame := region.Frame{Kind: region.Forward, Shard: 1}
		for b.Loop() {
			d.arrive(frame, "x")
		}
	})
}
