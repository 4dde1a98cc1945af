// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/nats"
)

const (
	askCallers  = 64
	askEntities = 1_000

	minAskThere, minAskHere = 0.8, 0.7
)

// shardAsks measures asks through a region: of entities in another process, beside raw requests
// between the same processes, and of entities in the same process, beside asks of a local host.
func shardAsks(ctx context.Context, b *run) (results []Result, err error) {
	c, err := newShardCrew(b.settings.ShardNode) //nolint:contextcheck // the server lives until close
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	b.progress("2 processes join")
	if err = c.joinAll(ctx, 2, shardSetup{Regions: 2}); err != nil {
		return nil, err
	}
	asker, other := c.hands[0], c.hands[1]
	if _, err = asker.shard(shardOrder{Do: shardWhere, Count: max(100, b.scaled(askEntities))}); err != nil {
		return nil, err
	}
	if _, err = other.shard(shardOrder{Do: shardEcho, Way: wayAnswer}); err != nil {
		return nil, err
	}
	rate := func(way string) func() (float64, error) {
		return func() (float64, error) {
			a, err := asker.shard(shardOrder{Do: shardEcho, Way: way, Callers: askCallers, Length: b.settings.Length})
			return a.rate(), err
		}
	}
	for _, row := range []struct {
		limit, value string
		goal         float64
		settings     string
	}{
		{wayRaw, wayThere, minAskThere, "of entities in another process, embedded NATS; raw: requests of nats.go between the same processes"},
		{wayHost, wayHere, minAskHere, "of entities in the same process; limit: the same asks of a local host"},
	} {
		limits, values, err := b.alternate(rate(row.limit), rate(row.value))
		if err != nil {
			return nil, err
		}
		limit, value := median(limits), median(values)
		results = append(results, Result{
			Value: value, Unit: "asks/s", Limit: limit, Ratio: value / limit, Goal: row.goal, Better: higher,
			Settings: fmt.Sprintf("%d callers in one process, %d bytes there and back, %s", askCallers, echoSize, row.settings),
		}.judge())
	}
	return results, nil
}

// where asks entities for their node and sorts them into local and remote ones.
func (s *shardServer) where(ctx context.Context, n int) (shardAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	s.homes = map[string][]eventsourcing.Ref[tally]{}
	for i := range n {
		to := s.region.Ref(tallyID(i))
		node, err := eventsourcing.Ask(ctx, to, where{})
		if err != nil {
			return shardAnswer{}, err
		}
		way := wayThere
		if node == s.node.Self().Name {
			way = wayHere
		}
		s.homes[way] = append(s.homes[way], to)
		s.homes[wayHost] = append(s.homes[wayHost], s.local.Ref(tallyID(i)))
	}
	return shardAnswer{}, nil
}

// echo lets callers ask for a time.
func (s *shardServer) echo(ctx context.Context, o *shardOrder) (shardAnswer, error) {
	payload := newNotes().bytes(0, echoSize)
	var ask func(caller int) ([]byte, error)
	switch o.Way {
	case wayAnswer:
		conn, err := s.bare()
		if err != nil {
			return shardAnswer{}, err
		}
		_, err = conn.Subscribe("echo", func(m *natsgo.Msg) { _ = m.Respond(m.Data) })
		return shardAnswer{}, errors.Join(err, conn.Flush())
	case wayRaw:
		conn, err := s.bare()
		if err != nil {
			return shardAnswer{}, err
		}
		ask = func(int) ([]byte, error) {
			m, err := conn.Request("echo", payload, echoTimeout)
			if err != nil {
				return nil, err
			}
			return m.Data, nil
		}
	default:
		to := s.homes[o.Way]
		if len(to) == 0 {
			return shardAnswer{}, fmt.Errorf("there is no entity %q", o.Way)
		}
		rngs := randoms(o.Callers)
		ask = func(caller int) ([]byte, error) {
			limited, cancel := context.WithTimeout(ctx, echoTimeout)
			defer cancel()
			return eventsourcing.Ask(limited, to[rngs[caller].IntN(len(to))], echo{Note: payload})
		}
	}
	c, err := together(o.Callers, o.Length, func(caller, _ int) error {
		got, err := ask(caller)
		if err == nil && !bytes.Equal(got, payload) {
			err = fmt.Errorf("%d other bytes came back", len(got))
		}
		return err
	})
	return shardAnswer{Ops: c.ops, Took: c.elapsed}, err
}

// bare is the connection of the plain client, which stays open until the process ends.
func (s *shardServer) bare() (*natsgo.Conn, error) {
	if s.conn != nil {
		return s.conn, nil
	}
	conn, err := dial(s.setup.Access)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	s.after = append(s.after, func() error { conn.Close(); return nil })
	return conn, nil
}

// dial connects the plain client.
func dial(access nats.Access) (*natsgo.Conn, error) {
	token, err := os.ReadFile(access.TokenFile)
	if err != nil {
		return nil, err
	}
	return natsgo.Connect(access.URLs[0], natsgo.Token(string(bytes.TrimSpace(token))), natsgo.Timeout(nodePatience))
}
