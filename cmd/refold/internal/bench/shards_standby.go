// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

const (
	standbyNodes, standbyShards = 3, 300
	// standbyEvents is the number of events of each entity before the first measurement.
	standbyEvents = 200
	// standbyAsked is how many entities of the removed node are asked, from standbyCallers goroutines.
	standbyAsked, standbyCallers = 1000, 64

	// lagRate is the number of commands per second to lagEntities entities. The lag of one command of
	// lagEach is measured.
	lagRate, lagEntities, lagEach = 5000, 1000, 10
	// lagBefore is the duration of the load before the measurement, lagLength that of the measurement.
	lagBefore, lagLength = 2 * time.Second, 20 * time.Second

	maxStandby = 0.333
	maxLag     = 100 // ms
)

// shardStandby measures how long the entities of a removed node take to reply on other nodes, with a
// standby and without one.
func shardStandby(ctx context.Context, b *run) ([]Result, error) {
	n := b.scaled(b.settings.Entities, 100)
	ids, events := make([]string, n), standbyEvents
	for i := range ids {
		ids[i] = counterID(i)
	}
	var c compared
	err := b.opened(ctx, func(d *database) (err error) {
		if err = b.fillPostgres(ctx, d, events, ids...); err != nil {
			return err
		}
		c, err = b.compare(func() (float64, error) {
			return b.takeOver(ctx, d, 0, n, int64(events))
		}, func() (float64, error) {
			events++ // prepareStandby stores an event of each entity
			return b.takeOver(ctx, d, 1, n, int64(events))
		})
		return err
	})
	return []Result{c.result(Result{
		Unit: "s to reply", Goal: maxStandby, Better: lower,
		Settings: fmt.Sprintf("%d nodes in one process, embedded NATS, %d shards, %d entities of %d events; from the time at which the shards of a removed node may start until each of them and %d random entities of them have replied to %d callers; with one standby; limit: without",
			standbyNodes, standbyShards, n, standbyEvents, b.scaled(standbyAsked, 10), standbyCallers),
		Detail: fmt.Sprintf("with %.2f, without %.2f s", c.values, c.limits),
	})}, err
}

func counterID(i int) string { return "counter|" + strconv.Itoa(i) }

// takeOver stops one of three nodes and returns the time in seconds until its entities reply. There are
// n entities that hold a sum; with standbys, one event is missing.
func (b *run) takeOver(ctx context.Context, d *database, standbys, n int, sum int64) (took float64, err error) {
	err = b.withStandbys(ctx, d, standbys, func(g *group, regions []*sharding.Region[counter]) (err error) {
		victim := (*g)[standbyNodes-1].Node()
		var ids []string
		if ids, err = b.entitiesOf(ctx, regions[0], victim.Self(), n); err != nil {
			return err
		}
		if standbys > 0 {
			if err = b.prepareStandbys(ctx, d, regions, n, sum); err != nil {
				return err
			}
		}
		b.progress("removing a node")
		after, err := askAfterRemoval(ctx, victim, (*g)[0].Node(), regions[0], ids, sum)
		took = after.Seconds()
		return err
	})
	return took, err
}

// withStandbys calls f with three nodes that host counters and have homes for all shards. The coordinator
// has no stored state, so that nodes of an earlier call do not matter.
func (b *run) withStandbys(ctx context.Context, d *database, standbys int, f func(g *group, regions []*sharding.Region[counter]) error) error {
	b.progress("starting nodes with %d standbys", standbys)
	return withRegions(ctx, b, d, standbyNodes, func(string) eventsourcing.Type[counter, event] {
		return counters(0, eventsourcing.Snapshots[counter, event]{})
	}, func(r *ddata.Replicator) sharding.Options {
		return sharding.Options{Shards: standbyShards, MinMembers: standbyNodes, Standbys: standbys, State: sharding.ReplicatedStores{Replicator: r}}
	}, func(g *group, regions []*sharding.Region[counter]) error {
		ids, err := idOfEachShard(regions[0], standbyShards, "probe-")
		if err == nil {
			err = inParallel(len(ids), standbyCallers, func(i int) error { // the first message of a shard gives it a home
				_, failed := eventsourcing.Ask(ctx, regions[0].Ref(ids[i]), where{})
				return failed
			})
		}
		if err != nil {
			return err
		}
		return f(g, regions)
	})
}

// entitiesOf returns random entities of the shards of a node, among them one of each shard if there is one.
func (b *run) entitiesOf(ctx context.Context, region *sharding.Region[counter], node identity.Node, n int) ([]string, error) {
	probes, err := idOfEachShard(region, standbyShards, "probe-")
	if err != nil {
		return nil, err
	}
	homes, err := homesOf(ctx, region, standbyShards, func(shard int) error {
		_, failed := eventsourcing.Ask(ctx, region.Ref(probes[shard]), where{})
		return failed
	})
	if err != nil {
		return nil, err
	}
	var first, more []string
	for _, i := range randoms(1)[0].Perm(n) {
		id := strconv.Itoa(i)
		shard, err := region.ShardOf(id)
		if err != nil {
			return nil, err
		}
		switch homes[shard] {
		case identity.Node{}:
			more = append(more, id)
		case node:
			first, homes[shard] = append(first, id), identity.Node{}
		}
	}
	all := append(first, more...) //nolint:gocritic // first is not used again
	return all[:min(len(all), b.scaled(standbyAsked, 10))], nil
}

// prepareStandbys stores one event of each entity, and waits until the standbys hold the states that
// include it.
func (b *run) prepareStandbys(ctx context.Context, d *database, regions []*sharding.Region[counter], n int, sum int64) error {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = counterID(i)
	}
	for len(ids) > 0 {
		next := min(len(ids), 1000)
		if err := fillOn(ctx, d.journal, int(sum)-1, int(sum), 1, ids[:next]...); err != nil {
			return err
		}
		ids = ids[next:]
	}
	for before := -1; ; {
		held, missing := 0, 0
		for i := range n {
			all := 0
			for _, r := range regions {
				r.ReadStandby(strconv.Itoa(i), math.MaxInt64, func(c *counter) {
					if c.Sum == sum {
						all++
					}
				})
			}
			if held += all; all == 0 {
				missing++
			}
		}
		b.progress("standbys hold %d states, %d of %d entities are missing", held, missing, n)
		if missing == 0 && held == before {
			return nil
		}
		before = held
		if err := pause(ctx, b.short(time.Second, 10*time.Millisecond)); err != nil {
			return err
		}
	}
}

// askAfterRemoval stops a node and asks entities through another one. It returns the time from the moment
// at which the shards may start, which is the removal and the margin, to the last reply.
func askAfterRemoval(ctx context.Context, victim, other *cluster.Node, region *sharding.Region[counter], ids []string, want int64) (time.Duration, error) {
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
			case err == nil && sum != want:
				return fmt.Errorf("the counter %s holds %d, want %d", ids[i], sum, want)
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return err
			}
		}
	})
	return time.Since(began), err
}

// shardLag measures the time from the reply to a command until all standbys of the entity hold its event.
// In the same run it measures the time until a live query of the journal has delivered the event.
func shardLag(ctx context.Context, b *run) ([]Result, error) {
	var all lags
	err := b.opened(ctx, func(d *database) error {
		return b.rounds(func() error {
			return b.withStandbys(ctx, d, 1, func(_ *group, regions []*sharding.Region[counter]) error {
				l, err := b.lagRound(ctx, d, regions)
				if err == nil {
					all.standby, all.live = append(all.standby, l.standby...), append(all.live, l.live...)
					all.replied, all.took = all.replied+l.replied, all.took+l.took
				}
				return err
			})
		})
	})
	text := func(ds []time.Duration) string {
		return fmt.Sprintf("p50 %v, p99 %v, longest %v", round(percentile(ds, 0.5)), round(percentile(ds, 0.99)), round(percentile(ds, 1)))
	}
	return []Result{atMost(ms(percentile(all.standby, 0.99)), "ms p99", maxLag,
		fmt.Sprintf("%d nodes in one process, embedded NATS, %d entities, %d commands/s that persist, one standby; from the reply until all standbys of the entity hold the event",
			standbyNodes, b.scaled(lagEntities, 20), b.scaled(lagRate, 100)),
		fmt.Sprintf("%s; until a live query has delivered it: %s; %d samples, %.0f replies/s", text(all.standby), text(all.live), len(all.standby), float64(all.replied)/all.took.Seconds()))}, err
}

func (b *run) lagRound(ctx context.Context, d *database, regions []*sharding.Region[counter]) (l *lags, err error) {
	own, err := b.again(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	l = &lags{regions: regions, seen: map[string]uint64{}, holders: make([][]*sharding.Region[counter], b.scaled(lagEntities, 20))}
	reading, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.follow(reading, own.journal) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	if err = l.prepare(ctx, b.short(time.Second, 10*time.Millisecond)); err != nil {
		return nil, err
	}
	rate, before := b.scaled(lagRate, 100), b.short(lagBefore, 10*time.Millisecond)
	b.progress("%d commands/s", rate)
	err = l.load(ctx, rate, before, b.short(lagLength, 100*time.Millisecond))
	return l, err
}

// lags are the delays of events after the replies to their commands.
type lags struct {
	regions []*sharding.Region[counter]
	holders [][]*sharding.Region[counter] // of each entity, the standbys

	mu      sync.Mutex
	seen    map[string]uint64 // the last event of each entity that a live query has delivered
	failed  error
	standby []time.Duration // until all standbys held the event
	live    []time.Duration // until a live query has delivered it
	replied int
	took    time.Duration
}

func (l *lags) follow(ctx context.Context, j journal.Journal) error {
	for e, err := range journal.Live(ctx, j, journal.Criteria{Types: []string{"counter"}}, "") {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.seen[e.ID] = e.SequenceNr
		l.mu.Unlock()
	}
	return nil
}

// delivered reports whether a live query has delivered a number of events of an entity.
func (l *lags) delivered(i int, events int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[counterID(i)] >= uint64(events) //nolint:gosec // not negative
}

// prepare stores an event of each entity. The standbys of an entity are the nodes that hold its state after
// a pause.
func (l *lags) prepare(ctx context.Context, wait time.Duration) error {
	err := inParallel(len(l.holders), standbyCallers, func(i int) error {
		sum, err := eventsourcing.Ask(ctx, l.regions[0].Ref(strconv.Itoa(i)), add{N: 1})
		if err != nil {
			return err
		}
		return until(ctx, time.Millisecond, func(context.Context) (bool, error) {
			return len(held(l.regions, i, sum)) > 0 && l.delivered(i, sum), nil
		})
	})
	if err == nil {
		err = pause(ctx, wait)
	}
	for i := range l.holders {
		l.holders[i] = held(l.regions, i, 1)
	}
	return err
}

// held returns the regions that hold the state of an entity, as a standby, with at least a sum.
func held(regions []*sharding.Region[counter], i int, sum int64) (all []*sharding.Region[counter]) {
	for _, r := range regions {
		r.ReadStandby(strconv.Itoa(i), math.MaxInt64, func(c *counter) {
			if c.Sum >= sum {
				all = append(all, r)
			}
		})
	}
	return all
}

// load sends commands to random entities at a fixed rate, and measures some of them.
func (l *lags) load(ctx context.Context, rate int, before, length time.Duration) (err error) {
	var asks sync.WaitGroup
	rng := randoms(1)[0]
	began := time.Now()
	for n := 0; err == nil && time.Since(began) < before+length; err = pause(ctx, loadTick) {
		for ; time.Duration(n)*time.Second/time.Duration(rate) < time.Since(began); n++ {
			i, sampled := rng.IntN(len(l.holders)), n%lagEach == 0 && time.Since(began) > before
			to, note := l.regions[n%len(l.regions)].Ref(strconv.Itoa(i)), noteOf(n, noteSize)
			asks.Go(func() {
				sum, failed := eventsourcing.Ask(ctx, to, add{N: 1, Note: note})
				if failed == nil && sampled {
					failed = l.measure(ctx, i, sum)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.failed = errors.Join(l.failed, failed)
				l.replied++
			})
		}
	}
	asks.Wait()
	l.took = time.Since(began)
	return errors.Join(err, l.failed)
}

// measure waits until the standbys of an entity hold a sum, and until a live query has delivered its event.
func (l *lags) measure(ctx context.Context, i int, sum int64) error {
	var standby, live time.Duration
	began := time.Now()
	err := until(ctx, time.Millisecond, func(context.Context) (bool, error) {
		if standby == 0 && len(held(l.holders[i], i, sum)) == len(l.holders[i]) {
			standby = time.Since(began)
		}
		if live == 0 && l.delivered(i, sum) {
			live = time.Since(began)
		}
		return standby > 0 && live > 0, nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.standby, l.live = append(l.standby, standby), append(l.live, live)
	return err
}

// withRegions calls f with n nodes that host a type. Each node has its own runtime, and its own handle of the
// store if the journal permits several.
func withRegions[S, E any](ctx context.Context, b *run, d *database, n int, typ func(node string) eventsourcing.Type[S, E],
	options func(r *ddata.Replicator) sharding.Options, f func(g *group, regions []*sharding.Region[S]) error,
) error {
	return withNATS(func(carrier carriers) (err error) { //nolint:contextcheck // the server lives until the end
		var closers []func() error
		defer func() {
			for i := range closers {
				err = errors.Join(err, closers[len(closers)-1-i]())
			}
		}()
		return withGroup(ctx, n, carrier, func(g *group) error {
			var regions []*sharding.Region[S]
			for _, r := range *g {
				own, err := b.again(ctx, d)
				if err != nil {
					return err
				}
				closers = append(closers, own.close)
				rt, err := eventsourcing.Open(eventsourcing.Config{ //nolint:contextcheck // it ends with Close
					Store: store.Of(own.journal, nil), JournalBreaker: journal.BreakerConfig{CallTimeout: nodePatience}, RecoveryTimeout: nodePatience,
				})
				if err != nil {
					return err
				}
				closers = append(closers, func() error { return rt.Close(context.WithoutCancel(ctx)) })
				region, err := sharding.Host(ctx, r.Node(), rt, typ(r.Node().Self().Name), options(r))
				if err == nil {
					err = region.AwaitReady(ctx)
				}
				if err != nil {
					return err
				}
				regions = append(regions, region)
			}
			return f(g, regions)
		})
	})
}

// idOfEachShard returns an ID of each shard.
func idOfEachShard[S any](region *sharding.Region[S], shards int, prefix string) ([]string, error) {
	ids := make([]string, shards)
	for i, left := 0, shards; left > 0; i++ {
		id := prefix + strconv.Itoa(i)
		shard, err := region.ShardOf(id)
		if err != nil {
			return nil, err
		}
		if ids[shard] == "" {
			ids[shard] = id
			left--
		}
	}
	return ids, nil
}

// homesOf returns the homes of all shards, as a region has learned them. A region learns the home of a
// shard, also after each move, when it has a message for the shard. Therefore homesOf calls ask for a
// shard without a known home, which sends one.
func homesOf[S any](ctx context.Context, region *sharding.Region[S], shards int, ask func(shard int) error) ([]identity.Node, error) {
	all := make([]identity.Node, shards)
	return all, until(ctx, 10*time.Millisecond, func(ctx context.Context) (bool, error) {
		for i := range all {
			home, known, err := region.Home(ctx, sharding.Shard(i))
			switch {
			case err != nil:
				return false, err
			case !known:
				return false, ask(i)
			}
			all[i] = home
		}
		return true, nil
	})
}
