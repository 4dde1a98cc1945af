// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"errors"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// A crier delivers cries that their receiver does not confirm.
type (
	crier struct{ Cries delivery.Outbox[cry] }
	cry   struct {
		eventsourcing.Command[crier, int]
		delivery.Header
	}
	// cryOut is answered with the number of unconfirmed cries.
	cryOut struct {
		eventsourcing.Command[crier, int]
		N int
	}
	cried struct{ N int }
)

func (c *crier) cry(ctx *eventsourcing.Context[crier, cried, int], o cryOut) eventsourcing.Decision[crier, cried, int] {
	return ctx.Persist(cried{o.N}).ReplyFunc(c.Cries.Unconfirmed)
}

func crierType() eventsourcing.Type[crier, cried] {
	cries := func(c *crier) *delivery.Outbox[cry] { return &c.Cries }
	ignore := func(_ *crier, ctx *eventsourcing.Context[crier, cried, eventsourcing.None], _ delivery.Answered[cry, int]) eventsourcing.Effect[crier, cried, eventsourcing.None] {
		return ctx.Effect
	}
	return eventsourcing.Type[crier, cried]{
		Name:     "crier",
		Commands: eventsourcing.Commands(eventsourcing.On("cry", (*crier).cry)),
		Parts:    eventsourcing.Parts(delivery.SendsWith("Cries", cries, delivery.Options{MaxUnconfirmed: 2}, ignore)),
		Apply: func(c *crier, e cried) {
			for range e.N {
				c.Cries.Deliver(eventsourcing.Address{Type: "listener", ID: "1"}, cry{})
			}
		},
		Events: codec.Types(codec.Name[cried]("cried")),
	}
}

// expectFull sends commands up to the limit of unconfirmed deliveries and beyond it.
func expectFull(t *testing.T, ref eventsourcing.Ref[crier]) {
	t.Helper()
	ctx := within(t)
	if n, err := eventsourcing.Ask(ctx, ref, cryOut{N: 2}); n != 2 || err != nil {
		t.Errorf("the reply is %d, %v, want 2", n, err)
	}
	if _, err := eventsourcing.Ask(ctx, ref, cryOut{N: 1}); !errors.Is(err, delivery.ErrFull) || !eventsourcing.NotDone(err) {
		t.Errorf("the reply is %v, want ErrFull", err)
	}
	if n, err := eventsourcing.Ask(ctx, ref, cryOut{}); n != 2 || err != nil {
		t.Errorf("the reply is %d, %v, want 2", n, err)
	}
}

// The command that exceeds the limit of unconfirmed deliveries is refused.
func TestFullOutbox(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		rt := openRuntime(t, db)
		criers, err := eventsourcing.Host(rt, crierType())
		if err != nil {
			t.Fatal(err)
		}
		expectFull(t, criers.Ref("a"))
		if highest, err := db.Journal().HighestSequenceNr(within(t), "crier|a"); highest != 2 || err != nil {
			t.Errorf("%d events are stored, %v, want 2", highest, err)
		}
	})
}

// A caller on another node receives the same error.
func TestFullOutboxOfAShardedEntity(t *testing.T) {
	t.Parallel()
	f, ctx := threeNodes(t), within(t)
	var regions []*sharding.Region[crier]
	for i, node := range f.nodes {
		r, err := sharding.Host(ctx, node, f.runtimes[i], crierType(), sharding.Options{Shards: 10})
		if err != nil {
			t.Fatal(err)
		}
		if err = r.AwaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	for _, id := range []string{"a", "b", "c", "d"} { // on several nodes
		expectFull(t, regions[0].Ref(id))
	}
}
