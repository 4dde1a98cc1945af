// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/eventsourcing"
)

const (
	askCallers  = 64
	askEntities = 1_000

	minAskThere, minAskHere = 1.5, 0.7
)

// shardAsks measures asks through a region. For entities in another process, the limit is raw
// requests between the same processes. For entities in the same process, the limit is asks through
// an eventsourcing.Local, without a region.
func shardAsks(ctx context.Context, b *run) (results []Result, err error) {
	err = b.withWorkers(ctx, func(ctx context.Context, w *workers) (err error) {
		b.progress("2 processes join")
		if err = w.joinAll(ctx, setup{Regions: 2}, "n1", "n2"); err != nil {
			return err
		}
		asker, other := w.all[0], w.all[1]
		if _, err = asker.do(order{Do: orderWhere, Count: b.scaled(askEntities, 100)}); err != nil {
			return err
		}
		if _, err = other.do(order{Do: orderAnswer}); err != nil {
			return err
		}
		rate := func(o order) func() (float64, error) {
			o.Callers, o.Length = askCallers, b.settings.Length
			return func() (_ float64, err error) {
				r, err := asker.do(o)
				return r.rate(), err
			}
		}
		for _, row := range []struct {
			limit, value order
			goal         float64
			settings     string
		}{
			{
				order{Do: orderRaw, Way: wayBare, Count: 1, Size: echoSize, Reply: echoSize},
				order{Do: orderEcho, Way: wayThere},
				minAskThere,
				"of entities in another process, embedded NATS; raw: requests of nats.go between the same processes",
			},
			{
				order{Do: orderEcho, Way: wayHost},
				order{Do: orderEcho, Way: wayHere},
				minAskHere,
				"of entities in the same process; limit: the same asks of a local host",
			},
		} {
			c, err := b.compare(rate(row.limit), rate(row.value))
			if err != nil {
				return err
			}
			results = append(results, c.result(Result{
				Unit: "asks/s", Goal: row.goal, Better: higher,
				Settings: fmt.Sprintf("%d callers in one process, %d bytes there and back, %s", askCallers, echoSize, row.settings),
			}))
		}
		return nil
	})
	return results, err
}

// where asks entities for their node and sorts them into local and remote ones.
func (s *server) where(ctx context.Context, o *order) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	s.homes = map[string][]eventsourcing.Ref[counter]{}
	for i := range o.Count {
		to := s.region.Ref(tallyID(i))
		node, err := eventsourcing.Ask(ctx, to, where{})
		if err = errors.Join(err, occupy(ctx, to), occupy(ctx, s.local.Ref(to.ID()))); err != nil {
			return result{}, err
		}
		way := wayThere
		if node == s.node.Self().Name {
			way = wayHere
		}
		s.homes[way] = append(s.homes[way], to)
		s.homes[wayHost] = append(s.homes[wayHost], s.local.Ref(tallyID(i)))
	}
	return result{}, nil
}

func (s *server) echo(ctx context.Context, o *order) (result, error) {
	to := s.homes[o.Way]
	if len(to) == 0 {
		return result{}, fmt.Errorf("no entities for %q", o.Way)
	}
	rngs := randoms(o.Callers)
	t, err := echoes(o.Callers, o.Length, func(caller int, payload []byte) ([]byte, error) {
		limited, cancel := context.WithTimeout(ctx, nodePatience)
		defer cancel()
		return eventsourcing.Ask(limited, to[rngs[caller].IntN(len(to))], echo{Note: payload})
	})
	return result{Ops: t.ops, Took: t.elapsed}, err
}
