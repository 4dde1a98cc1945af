// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/eventsourcing"
)

const (
	// killBefore is the duration of the load before a node is killed. killAfter is its duration
	// after all shards reply again.
	killBefore = 5 * time.Second
	killAfter  = 2 * time.Second

	// maxKill is the maximum time beyond the configured waits.
	maxKill = 8
)

type killed struct {
	strained

	victim                                     string
	noticed, downed, removed, coordinator, all time.Duration // since the kill
	suspected                                  int
}

func (k killed) String() string {
	s := fmt.Sprintf("%s killed: unreachable after %v, down %v, removed %v, coordinator replies after %v, all shards reply after %v; %d asks failed",
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
	// The nodes in the order in which they join. The leader is the first by address.
	victims := []string{"oldest", "leader", "plain"}
	names := []string{"n2", "n1", "n3"}
	var results []Result
	for _, replicated := range []bool{false, true} {
		store := "state in the journal"
		if replicated {
			store = "replicated state"
		}
		for i, victim := range victims {
			if b.trial() && len(results) > 0 {
				return results, nil // no further runs, because each run takes minutes
			}
			var runs []killed
			if err := b.runs(fmt.Sprintf("%s, the %s node, ", store, victim), func() error {
				return b.withWorkers(ctx, func(ctx context.Context, w *workers) error {
					k, err := b.kill(ctx, w, names, i, replicated)
					k.victim = victim
					runs = append(runs, k)
					return err
				})
			}); err != nil {
				return results, fmt.Errorf("the %s node killed, %s: %w", victim, store, err)
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
	settings := fmt.Sprintf("SIGKILL of the %s of 3 processes, %s, %d shards, %d entities, %d asks a second; until every shard replies on both other nodes, beyond detection, stable-after and margin of %v each; worst of %d",
		victim, store, b.moveShards(), b.moveEntities(), runs[0].rate, nodeStableAfter, len(runs))
	return []Result{
		atMost(beyond, "s beyond", maxKill, settings, strings.Join(details, "; ")),
		atMost(lost, "acked lost", 0, "the same", ""),
		atMost(suspected, "suspicions", 0, "the same, of running nodes", ""),
	}
}

func (b *run) kill(ctx context.Context, w *workers, names []string, peer int, replicated bool) (k killed, err error) {
	s := b.shardSetup(3)
	s.Replicated, s.Downing.StableAfter = replicated, nodeStableAfter
	defer func() { err = errors.Join(err, b.drop(context.WithoutCancel(ctx), s.Schema)) }()
	if err = w.joinAll(ctx, s, names...); err != nil {
		return k, err
	}
	victim := w.all[peer]
	others := slices.DeleteFunc(slices.Clone(w.all), func(one *worker) bool { return one == victim })
	var at time.Time
	if k.strained, err = b.strain(ctx, others, func() (err error) {
		if err = pause(ctx, b.short(killBefore, minPause)); err != nil {
			return err
		}
		at = time.Now()
		if err = w.stop(victim, true); err != nil {
			return err
		}
		if err = k.replies(others, at); err != nil {
			return err
		}
		return pause(ctx, b.short(killAfter, minPause))
	}); err != nil {
		return k, err
	}
	err = k.observe(others, victim.name, at)
	return k, err
}

// observe evaluates the observations of the other nodes: the last one about the victim, and false
// ones about live nodes.
func (k *killed) observe(others []*worker, victim string, at time.Time) error {
	results, err := each(others, order{Do: orderSeen})
	if err != nil {
		return err
	}
	for _, r := range results {
		for _, e := range r.Seen {
			since := e.At.Sub(at)
			switch {
			case e.Kind == cluster.MemberUnreachable && (e.Node.Name != victim || since < 0):
				k.suspected++
			case e.Kind == cluster.MemberUnreachable:
				k.noticed = max(k.noticed, since)
			case e.Kind == cluster.MemberDowned:
				k.downed = max(k.downed, since)
			case e.Kind == cluster.MemberRemoved:
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
)

// maxFailover is the goal for the time beyond the removal margin.
const maxFailover = 1

// shardFailover measures the failure of one of three nodes without load, with replicated state. It
// shows the fixed waits between the removal of the node and the reply of the last shard.
func shardFailover(ctx context.Context, b *run) (results []Result, err error) {
	names := []string{"n2", "n1", "n3"} // as in shardKill
	for i, victim := range []string{"oldest", "leader", "plain"} {
		var worst float64
		var details []string
		if err = b.runs(fmt.Sprintf("the %s node, ", victim), func() error {
			return b.withWorkers(ctx, func(ctx context.Context, w *workers) (err error) {
				s := setup{Shards: b.moveShards(), Regions: 3, Downing: downing.Settings{StableAfter: nodeStableAfter}}
				k := killed{victim: victim}
				err = w.joinAll(ctx, s, names...)
				if err == nil {
					_, err = each(w.all, order{Do: orderProbe})
				}
				if err == nil {
					err = b.killQuietly(w, w.all[i], &k)
				}
				worst = max(worst, (k.all - k.removed - nodeStableAfter).Seconds())
				details = append(details, k.String())
				return err
			})
		}); err != nil {
			return results, fmt.Errorf("the %s node killed: %w", victim, err)
		}
		results = append(results, atMost(worst, "s beyond", maxFailover,
			fmt.Sprintf("SIGKILL of the %s of 3 processes, replicated state, %d shards, no load; from removal until every shard replies on both other nodes, beyond the margin of %v; worst of %d",
				victim, b.moveShards(), nodeStableAfter, len(details)), strings.Join(details, "; ")))
		if b.trial() {
			break // each run takes 20 seconds
		}
	}
	return results, nil
}

// killQuietly kills a process and waits until all shards reply on the others.
func (b *run) killQuietly(w *workers, victim *worker, k *killed) error {
	at := time.Now()
	if err := w.stop(victim, true); err != nil {
		return err
	}
	if err := k.replies(w.all, at); err != nil {
		return err
	}
	return k.observe(w.all, victim.name, at)
}

// replies records when the coordinator and all shards reply on some nodes.
func (k *killed) replies(nodes []*worker, at time.Time) error {
	probes, err := each(nodes, order{Do: orderProbe})
	for _, p := range probes {
		k.coordinator = max(k.coordinator, p.At.Sub(at))
		k.all = max(k.all, p.Answered.Sub(at))
	}
	return err
}

// probe asks an entity of each shard until it replies, and the coordinator until one is active.
// Answered is the time of the last reply of an entity, At the time of the reply of the coordinator.
func (s *server) probe(ctx context.Context, _ *order) (r result, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	of, err := idOfEachShard(s.region, s.setup.Shards, "probe-")
	if err != nil {
		return r, err
	}
	answered := make([]time.Time, len(of)+1)
	err = inParallel(len(answered), len(answered), func(i int) (err error) {
		for {
			limited, cancel := context.WithTimeout(ctx, probeTimeout)
			if i < len(of) {
				_, err = eventsourcing.Ask(limited, s.region.Ref(of[i]), where{})
			} else {
				_, err = s.region.CurrentRegions(limited)
			}
			cancel()
			if answered[i] = time.Now(); err == nil {
				return nil
			}
			if late := pause(ctx, probePause); late != nil {
				return err
			}
		}
	})
	r.At, r.Answered = answered[len(of)], slices.MaxFunc(answered[:len(of)], time.Time.Compare)
	return r, err
}
