// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
)

const (
	// killBefore is the duration of the load before a node is killed, killAfter after all shards
	// reply again.
	killBefore = 5 * time.Second
	killAfter  = 2 * time.Second

	// maxKill is the maximum time beyond the configured waits.
	maxKill = 8
)

// killed is the result of one kill.
type killed struct {
	strained

	victim                                     string
	noticed, downed, removed, coordinator, all time.Duration // since the kill
	suspected                                  int
}

func (k killed) String() string {
	s := fmt.Sprintf("%s killed: unreachable after %v, down %v, removed %v, coordinator answers %v, all shards answer %v; %d asks failed",
		k.victim, round(k.noticed), round(k.downed), round(k.removed), round(k.coordinator), round(k.all), k.failed)
	if len(k.errors) > 0 {
		s += " (" + k.errors[0] + ")"
	}
	return s
}

// beyond returns the time beyond detection, stable-after and margin.
func (k killed) beyond() float64 { return (k.all - k.noticed - 2*nodeStableAfter).Seconds() }

// shardKill measures the failure of one of three nodes: the oldest, which runs the coordinator, the
// leader of the cluster, or another one.
func shardKill(ctx context.Context, b *run) ([]Result, error) {
	var results []Result
	for _, replicated := range []bool{false, true} {
		store, victims := "state in the journal", []string{"oldest", "leader", "plain"}
		if replicated {
			store = "replicated state"
		}
		if b.settings.Scale > 1 {
			if replicated {
				break // each run takes minutes
			}
			victims = victims[:1]
		}
		for _, victim := range victims {
			var runs []killed
			for i := range max(1, b.settings.Runs) {
				b.progress("%s, the %s node, run %d of %d", store, victim, i+1, max(1, b.settings.Runs))
				k, err := b.kill(ctx, victim, replicated)
				if err != nil {
					return results, fmt.Errorf("the %s node killed, %s: %w", victim, store, err)
				}
				runs = append(runs, k)
			}
			results = append(results, b.killResults(victim, store, runs)...)
		}
	}
	return results, nil
}

func (b *run) killResults(victim, store string, runs []killed) []Result {
	var beyond, lost, suspected float64
	var details []string
	for i, k := range runs {
		if i == 0 || k.beyond() > beyond {
			beyond = k.beyond()
		}
		lost, suspected = lost+float64(k.lost), suspected+float64(k.suspected)
		details = append(details, k.String())
	}
	settings := fmt.Sprintf("SIGKILL of the %s of 3 processes, %s, %d shards, %d entities, %d asks a second; until every shard answers on both others, beyond detection, stable-after and margin of %v each; worst of %d",
		victim, store, b.moveShards(), b.moveEntities(), runs[0].rate, nodeStableAfter, len(runs))
	return []Result{
		atMost(beyond, "s beyond", maxKill, settings, strings.Join(details, "; ")),
		atMost(lost, "acked lost", 0, "the same", ""),
		atMost(suspected, "suspicions", 0, "the same, of nodes that live", ""),
	}
}

// killNames are the names of the nodes in the order in which they join. The leader is the first by
// address.
func killNames() (names []string, peer map[string]string) {
	return []string{"n2", "n1", "n3"}, map[string]string{"oldest": "n2", "leader": "n1", "plain": "n3"}
}

// kill kills a node once.
func (b *run) kill(ctx context.Context, peer string, replicated bool) (k killed, err error) {
	setup := b.shardSetup(3)
	setup.Replicated, setup.StableAfter = replicated, nodeStableAfter
	c, err := newShardCrew(b.settings.ShardNode) //nolint:contextcheck // the server lives until close
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, c.close(), b.drop(context.WithoutCancel(ctx), setup.Schema)) }()
	names, roles := killNames()
	k.victim = peer
	if err = c.joinNamed(ctx, names, setup); err != nil {
		return k, err
	}
	victim := c.hands[slices.Index(names, roles[peer])]
	others := slices.DeleteFunc(slices.Clone(c.hands), func(h *hand) bool { return h == victim })
	var at time.Time
	if k.strained, err = b.strain(ctx, others, func() (err error) {
		if err = pause(ctx, b.short(killBefore)); err != nil {
			return err
		}
		at = time.Now()
		if err = c.murder(victim); err != nil {
			return err
		}
		probes, err := shardEach(others, func(int) shardOrder { return shardOrder{Do: shardProbe} })
		if err != nil {
			return err
		}
		for _, p := range probes {
			k.coordinator = max(k.coordinator, p.At.Sub(at))
			k.all = max(k.all, p.Answered.Sub(at))
		}
		return pause(ctx, b.short(killAfter))
	}); err != nil {
		return k, err
	}
	err = k.learn(others, victim.name, at)
	return k, err
}

// learn evaluates the observations of the other nodes: the last one about the victim, and false
// ones about live nodes.
func (k *killed) learn(others []*hand, victim string, at time.Time) error {
	answers, err := shardEach(others, func(int) shardOrder { return shardOrder{Do: shardSeen} })
	if err != nil {
		return err
	}
	for _, a := range answers {
		for _, e := range a.Seen {
			since := e.At.Sub(at)
			switch {
			case e.Kind == eventUnreachable && (e.Node.Name != victim || since < 0):
				k.suspected++
			case e.Kind == eventUnreachable:
				k.noticed = max(k.noticed, since)
			case e.Kind == eventDowned:
				k.downed = max(k.downed, since)
			case e.Kind == eventRemoved:
				k.removed = max(k.removed, since)
			}
		}
	}
	return nil
}

const (
	// probePause is the pause between two asks of a shard's entity, probeTimeout the time-out of
	// one ask.
	probePause   = 250 * time.Millisecond
	probeTimeout = 2 * time.Second
	// probePatience is the time after which a shard counts as lost.
	probePatience = 2 * time.Minute
)

// The observations of a node about another one.
const (
	eventUnreachable = "unreachable"
	eventDowned      = "downed"
	eventRemoved     = "removed"
)

// seenEvent is one observation about another node.
type seenEvent struct {
	Kind string
	Node identity.Node
	At   time.Time
}

// watch records the node's observations.
func (s *shardServer) watch(ctx context.Context) {
	kinds := map[cluster.EventKind]string{
		cluster.MemberUnreachable: eventUnreachable, cluster.MemberDowned: eventDowned, cluster.MemberRemoved: eventRemoved,
	}
	for e := range s.node.Events(ctx, cluster.MemberUnreachable, cluster.MemberDowned, cluster.MemberRemoved) {
		if kind := kinds[e.Kind]; kind != "" {
			s.mu.Lock()
			s.seen = append(s.seen, seenEvent{kind, e.Member.Node, time.Now()})
			s.mu.Unlock()
		}
	}
}

// learned returns them.
func (s *shardServer) learned() shardAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return shardAnswer{Seen: slices.Clone(s.seen)}
}

// probe asks an entity of each shard until it replies, and the coordinator until one is active.
// Answered is the time of the last reply, At that of the coordinator.
func (s *shardServer) probe(ctx context.Context) (a shardAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	of := make([]string, s.setup.Shards)
	for i, left := 0, len(of); left > 0; i++ {
		id := fmt.Sprintf("probe-%d", i)
		shard, err := s.region.ShardOf(id)
		if err != nil {
			return a, err
		}
		if of[shard] == "" {
			of[shard] = id
			left--
		}
	}
	answered := make([]time.Time, len(of))
	errs := make([]error, len(of)+1)
	again := func(f func(ctx context.Context) error) (time.Time, error) {
		for {
			limited, cancel := context.WithTimeout(ctx, probeTimeout)
			err := f(limited)
			cancel()
			if err == nil {
				return time.Now(), nil
			}
			if late := pause(ctx, probePause); late != nil {
				return time.Time{}, err
			}
		}
	}
	var wg sync.WaitGroup
	for i, id := range of {
		wg.Go(func() {
			answered[i], errs[i] = again(func(ctx context.Context) error {
				_, err := eventsourcing.Ask(ctx, s.region.Ref(id), where{})
				return err
			})
		})
	}
	a.At, errs[len(of)] = again(func(ctx context.Context) error {
		_, err := s.region.CurrentRegions(ctx)
		return err
	})
	wg.Wait()
	a.Answered = slices.MaxFunc(answered, time.Time.Compare)
	return a, firstError(errs)
}
