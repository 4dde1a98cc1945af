// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

const (
	standbyNodes, standbyShards = 3, 300
	// standbyEntities is the number of entities, each with standbyEvents events.
	standbyEntities, standbyEvents = 10_000, 200
	// standbyAsked is how many entities of the removed node are asked, from standbyCallers goroutines.
	standbyAsked, standbyCallers = 1000, 64

	maxStandby = 1.0 / 3
)

// shardStandby measures how long the entities of a removed node take to reply on other nodes, with a
// standby and without one.
func shardStandby(ctx context.Context, b *run) ([]Result, error) {
	var cold, warm []float64
	err := b.rounds(func() (err error) {
		for standbys, times := range []*[]float64{&cold, &warm} {
			var took time.Duration
			if took, err = b.takeOver(ctx, standbys); err != nil {
				return err
			}
			*times = append(*times, took.Seconds())
		}
		return nil
	})
	settings := fmt.Sprintf("%d nodes in one process, embedded NATS, %d shards, %d entities of %d events; from the time at which the shards of a removed node may start until %d of its entities have replied; with one standby, in relation to none",
		standbyNodes, standbyShards, b.scaled(standbyEntities, 100), standbyEvents, b.scaled(standbyAsked, 10))
	return []Result{atMost(median(warm)/median(cold), "of the time", maxStandby, settings,
		fmt.Sprintf("%.2f s without a standby, %.2f s with one", median(cold), median(warm)))}, err
}

// takeOver stops one of three nodes and returns the time until its entities reply.
func (b *run) takeOver(ctx context.Context, standbys int) (took time.Duration, err error) {
	err = withNATS(func(carrier carriers) error { //nolint:contextcheck // the server lives until the end
		return b.opened(ctx, func(d *database) error {
			var rts []*eventsourcing.Runtime
			defer func() {
				for _, rt := range rts {
					err = errors.Join(err, rt.Close(context.WithoutCancel(ctx)))
				}
			}()
			return withGroup(ctx, standbyNodes, carrier, func(g *group) (err error) {
				var regions []*sharding.Region[counter]
				for _, r := range *g {
					rt, failed := eventsourcing.Open(eventsourcing.Config{Store: store.Of(d.journal, nil)}) //nolint:contextcheck // it ends with Close
					if failed != nil {
						return failed
					}
					rts = append(rts, rt)
					region, failed := sharding.Host(ctx, r.Node(), rt, counters(0, eventsourcing.Snapshots[counter, event]{}), sharding.Options{
						Shards: standbyShards, MinMembers: standbyNodes, Standbys: standbys,
					})
					if failed == nil {
						failed = region.AwaitReady(ctx)
					}
					if failed != nil {
						return failed
					}
					regions = append(regions, region)
				}
				last := (*g)[standbyNodes-1].Node()
				ids, err := b.prepareStandby(ctx, d, regions, standbys)
				if err != nil {
					return err
				}
				took, err = askAfterRemoval(ctx, last, (*g)[0].Node(), regions[0], ids)
				return err
			})
		})
	})
	return took, err
}

// prepareStandby writes the events, waits until the standbys have them, and returns entities of the last
// node.
func (b *run) prepareStandby(ctx context.Context, d *database, regions []*sharding.Region[counter], standbys int) (ids []string, err error) {
	all := make([]string, b.scaled(standbyEntities, 100))
	for i := range all {
		all[i] = "counter|" + strconv.Itoa(i)
	}
	for chunk := range slices.Chunk(all, 100) {
		b.progress("writing %d events", len(all)*standbyEvents)
		if err = fill(ctx, d.journal, standbyEvents, 50, chunk...); err != nil {
			return nil, err
		}
	}
	homes := make([]bool, standbyShards) // on the last node
	err = until(ctx, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		placed := 0
		for shard := range homes {
			home, known, failed := regions[0].Home(ctx, sharding.Shard(shard))
			if failed != nil {
				return false, failed
			}
			if known {
				placed++
			}
			homes[shard] = home.Name == "n"+strconv.Itoa(standbyNodes)
		}
		if placed == standbyShards {
			return true, nil
		}
		return false, inParallel(len(all), standbyCallers, func(i int) error { // the first message of a shard gives it a home
			_, failed := eventsourcing.Ask(ctx, regions[0].Ref("probe-"+strconv.Itoa(i)), where{})
			return failed
		})
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		id := strconv.Itoa(i)
		shard, err := regions[0].ShardOf(id)
		if err != nil {
			return nil, err
		}
		if homes[shard] && len(ids) < b.scaled(standbyAsked, 10) {
			ids = append(ids, id)
		}
	}
	return ids, until(ctx, 50*time.Millisecond, func(context.Context) (bool, error) {
		for _, id := range ids {
			held := standbys == 0
			for _, r := range regions[:standbyNodes-1] {
				r.ReadStandby(id, time.Minute, func(c *counter) { held = held || c.Sum == standbyEvents })
			}
			if !held {
				return false, nil
			}
		}
		return true, nil
	})
}

// askAfterRemoval stops a node and asks entities through another one. It returns the time from the moment
// at which the shards may start, which is the removal and the margin, to the last reply.
func askAfterRemoval(ctx context.Context, victim, other *cluster.Node, region *sharding.Region[counter], ids []string) (time.Duration, error) {
	removed := make(chan time.Time, 1)
	watching := make(chan struct{})
	events, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	go func() {
		defer close(removed)
		for e := range other.Events(events, cluster.Snapshot, cluster.MemberRemoved) {
			switch {
			case e.Kind == cluster.Snapshot:
				close(watching)
			case e.Member.Node == victim.Self():
				removed <- time.Now()
				return
			}
		}
	}()
	<-watching
	victim.Stop()
	<-victim.Done()
	at, ok := <-removed
	if !ok {
		return 0, errors.New("the stopped node was not removed")
	}
	began := at.Add(other.RemovalMargin(standbyNodes))
	if err := pause(ctx, max(0, time.Until(began))); err != nil {
		return 0, err
	}
	err := inParallel(len(ids), standbyCallers, func(i int) error {
		for {
			limited, cancel := context.WithTimeout(ctx, probeTimeout)
			sum, err := eventsourcing.Ask(limited, region.Ref(ids[i]), read{})
			cancel()
			switch {
			case err == nil && sum != standbyEvents:
				return fmt.Errorf("the counter %s holds %d, want %d", ids[i], sum, standbyEvents)
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return err
			}
		}
	})
	return time.Since(began), err
}
