// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// shards is how many parts the accounts are divided into: some for each branch that there may ever be. It must not
// change while any runs.
const shards = 200

// leavePatience is how long a branch that leaves waits for the others in each step of that: they may be busy.
const leavePatience = 30 * time.Second

// branchConfig says how a branch takes part in its cluster.
type branchConfig struct {
	cluster string
	carrier transport.Carrier // the branch closes it
	seeds   []string
	state   string
	members int // how many there have to be before accounts are hosted
	downing downing.Settings
	logger  *slog.Logger
}

// branch is a node of a cluster that runs the bank: it hosts some of the accounts, and reaches all of them. What it can do with
// an account is what any bank can; only where the account is differs.
type branch struct {
	*bank

	node   *cluster.Node
	region *sharding.Region[Command]
	health *sharding.Health
	logger *slog.Logger
}

// openBranch starts a branch on a store, which all of them share. It does not wait until it has joined.
func openBranch(ctx context.Context, cfg branchConfig, s store.DB, r rates.Rates) (_ *branch, err error) {
	log := cfg.logger.With(slog.String("branch", cfg.carrier.Self().Name))
	node, err := cluster.Start(cluster.Config{ //nolint:contextcheck // it lives until it is shut down
		Cluster: cfg.cluster, Carrier: cfg.carrier, Seeds: cfg.seeds, Downing: cfg.downing, Logger: log,
		PhaseTimeout: map[cluster.Phase]time.Duration{
			cluster.PhaseStopRegions: leavePatience, cluster.PhaseLeave: leavePatience, cluster.PhaseExiting: leavePatience, cluster.PhaseExitingDone: leavePatience,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open the branch: %w", err)
	}
	b := &branch{node: node, logger: log}
	defer func() { //nolint:contextcheck // to end takes as long as it takes
		if err != nil {
			node.Stop()
			closed := b.close()
			if b.gaveUp() {
				err = node.Err() // and what has failed has failed for that reason
			}
			err = fmt.Errorf("open the branch: %w", errors.Join(err, closed))
		}
	}()
	if b.bank, err = openRuntime(s, r, log, eventsourcing.Observer{}); err != nil { //nolint:contextcheck // it lives until it is closed
		return nil, err
	}
	var state sharding.CoordinatorStores = sharding.JournalState(s.Journal(), s.Snapshots())
	if cfg.state == stateDDATA {
		replicator, failed := ddata.Start(ctx, node, ddata.Config{})
		if failed != nil {
			return nil, failed
		}
		state = sharding.ReplicatedState(replicator)
	}
	b.region, err = sharding.Start(ctx, node, b.typ, sharding.Options{
		Runtime: b.runtime, State: state, Host: patience(), Shards: shards, MinMembers: cfg.members,
	})
	if err != nil {
		return nil, err
	}
	b.ref = b.region.Ref
	b.health = sharding.NewHealth(node, sharding.HealthConfig{Types: []string{b.typ.Name}})
	return b, node.Singleton(ctx, cluster.Singleton{Name: "bank-waker", Run: func(ctx context.Context, _ *cluster.Inbox) error {
		b.keepAwake(ctx)
		return nil
	}})
}

// shutdown lets the branch leave: what it hosts moves to others, and nothing is lost.
func (b *branch) shutdown(ctx context.Context) error {
	return errors.Join(b.node.Shutdown(ctx), b.close()) //nolint:contextcheck // to end takes as long as it takes
}

// close ends a branch whose node ends, and waits for that.
func (b *branch) close() error {
	<-b.node.Done()
	if b.bank == nil {
		return nil
	}
	return b.bank.close()
}

// gaveUp reports whether the node of the branch has ended, and nobody wanted that.
func (b *branch) gaveUp() bool {
	err := b.node.Err()
	return err != nil && !errors.Is(err, cluster.ErrLeft) && !errors.Is(err, cluster.ErrStopped)
}

// waitsFor says what a branch that does not reach all accounts yet has not found.
func (b *branch) waitsFor() string {
	switch s := b.node.State(); {
	case !s.Connected:
		return "the NATS servers: none of --nats answers"
	case !s.Joined:
		return "the branches that it joins: none of --join lets it in"
	}
	return "the branch that deals out the accounts"
}

// branchNames returns the names of some branches, "branch-1" and so on.
func branchNames(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("branch-%d", i+1))
	}
	return slices.Clip(all)
}

// wakeInterval is how often at least it is looked for transfers that nobody carries on.
const wakeInterval = time.Minute

// keepAwake sees to it that transfers go on whose source was on a branch that has gone, or left memory when its shard moved: it
// is started again where its shard is now. One branch does so for all.
func (b *branch) keepAwake(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	changes, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for range b.node.Changes(ctx, cluster.MemberRemoved) {
			select {
			case changes <- struct{}{}:
			default: // it looks soon anyway
			}
		}
	}()
	defer func() { cancel(); <-done }()
	tick := time.NewTicker(wakeInterval)
	defer tick.Stop()
	for {
		woken, err := b.wake(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			b.logger.WarnContext(ctx, "accounts with pending transfers not started", slog.Any("error", err))
		case woken > 0:
			b.logger.InfoContext(ctx, "accounts with pending transfers are asked to go on", slog.Int("accounts", woken))
		}
		select {
		case <-changes:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// wake sends a command that does nothing to each account whose transfers have not ended, wherever it is. It returns how many
// these are.
func (b *branch) wake(ctx context.Context) (woken int, err error) {
	lister, ok := journal.As[journal.IDLister](b.journal)
	if !ok {
		return 0, fmt.Errorf("wake: %w: the journal can't list what it holds", eventsourcing.ErrInvalid)
	}
	var first error
	for pid, err := range lister.PersistenceIDs(ctx, "") {
		if err != nil {
			return woken, fmt.Errorf("wake: list the accounts: %w", err)
		}
		kind, id := journal.SplitID(pid)
		if kind != AccountTypeName {
			continue
		}
		pending, err := b.pending(ctx, id)
		if err == nil && pending {
			woken++
			err = eventsourcing.Tell(ctx, b.account(id), Lookup{})
		}
		if err != nil && first == nil {
			first = fmt.Errorf("wake account %s: %w", id, err)
		}
	}
	return woken, first
}

// pending reports whether an account has transfers that have not ended.
func (b *branch) pending(ctx context.Context, id string) (bool, error) {
	folded, err := eventsourcing.Fold(ctx, b.runtime, b.typ, id, eventsourcing.FoldOptions[Event]{})
	if err != nil {
		return false, err
	}
	account, ok := folded.State.(*Account)
	return ok && account.Transfers.Unconfirmed() > 0, nil
}

// api is that of any bank, with what there is to know of the branch.
func (b *branch) api() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", newAPI(b.bank, b.logger))
	mux.Handle("GET /live", b.health)
	mux.Handle("GET /ready", b.health)
	mux.HandleFunc("GET /branch", b.describe)
	return mux
}

// branchBody says what a branch knows of its cluster, and has.
type branchBody struct {
	Branch  string       `json:"branch"`
	Members []memberBody `json:"members"`
	// Coordinator decides which branch has which accounts.
	Coordinator string `json:"coordinator,omitempty"`
	// Shards and Accounts are how many of them are here, Waiting how many commands wait.
	Shards   int `json:"shards"`
	Accounts int `json:"accounts"`
	Waiting  int `json:"waiting"`
}

// memberBody is a branch as another one sees it.
type memberBody struct {
	Branch    string `json:"branch"`
	Status    string `json:"status"`
	Reachable bool   `json:"reachable"`
}

func (b *branch) describe(w http.ResponseWriter, r *http.Request) {
	known := b.node.State()
	body := branchBody{Branch: b.node.Self().String(), Members: []memberBody{}}
	for _, m := range known.Members {
		body.Members = append(body.Members, memberBody{m.Node.String(), m.Status.String(), known.Reachable(m.Node)})
	}
	state, err := b.region.State(r.Context())
	if err != nil && !errors.Is(err, eventsourcing.ErrStopped) {
		http.Error(w, fmt.Sprintf("the branch does not say: %v", err), http.StatusServiceUnavailable)
		return
	}
	if state.Registered {
		body.Coordinator = state.Coordinator.String()
	}
	body.Shards, body.Waiting = len(state.Shards), state.Waiting
	for _, s := range state.Shards {
		body.Accounts += s.Tracked
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(body) // or the caller has gone
}
