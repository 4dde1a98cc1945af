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
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// shards is the number of shards of accounts: several for each branch of the largest cluster. It
// must not change while a branch runs.
const shards = 200

// leavePatience bounds how long a leaving branch waits for the others in each phase.
const leavePatience = 30 * time.Second

type branchConfig struct {
	cluster  string
	carrier  transport.Carrier // the branch closes it
	seeds    []string
	state    string
	standbys int // number of further branches that keep the states of accounts ready
	members  int // number of branches required before accounts are hosted
	downing  downing.Settings
	logger   *slog.Logger
}

// branch is a cluster node that runs the bank. It hosts some of the accounts and has references to
// all accounts. The references work as in a bank without a cluster.
type branch struct {
	*bank

	node   *cluster.Node
	region *sharding.Region[Account]
	health *sharding.Health
	logger *slog.Logger
	// prepared counts the accounts that started with the state of a standby.
	prepared atomic.Int64
	// shown shows the branch to consoles, with the load that meter measures.
	shown   *console.Agent
	meter   console.Meter
	metrics *metrics
}

// openBranch starts a branch on the shared store. It does not wait for the join.
func openBranch(ctx context.Context, cfg branchConfig, s store.DB, r rates.Rates) (_ *branch, err error) {
	log := cfg.logger.With(slog.String("branch", cfg.carrier.Self().Name))
	m, err := newMetrics()
	if err != nil {
		return nil, fmt.Errorf("open the branch: %w", err)
	}
	node, err := cluster.Start(cluster.Config{ //nolint:contextcheck // the node runs until Shutdown
		Cluster: cfg.cluster, Carrier: cfg.carrier, Seeds: cfg.seeds, Downing: cfg.downing, Logger: log, Observer: m.ClusterObserver(),
		PhaseTimeout: map[cluster.Phase]time.Duration{
			cluster.PhaseRequestsDone: drainPatience,
			cluster.PhaseStopRegions:  leavePatience, cluster.PhaseLeave: leavePatience, cluster.PhaseExiting: leavePatience, cluster.PhaseExitingDone: leavePatience,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open the branch: %w", errors.Join(err, m.Close()))
	}
	b := &branch{node: node, metrics: m, logger: log}
	defer func() { //nolint:contextcheck // closing has its own time limits
		if err != nil {
			_ = node.Shutdown(context.WithoutCancel(ctx)) // its phases have time-outs
			closed := b.close()
			if failure := b.failure(); failure != nil {
				err = failure // err is a consequence of the failure of the node
			}
			err = fmt.Errorf("open the branch: %w", errors.Join(err, closed))
		}
	}()
	observer := eventsourcing.Tee(m.Observer(), b.meter.Observer(), eventsourcing.Observer{Recovery: func(info eventsourcing.RecoveryInfo) { //nolint:contextcheck // the observer has no context
		if info.Prepared && info.Err == nil {
			b.prepared.Add(1)
		}
	}})
	if b.bank, err = openRuntime(s, r, log, observer); err != nil { //nolint:contextcheck // the runtime runs until it is closed
		return nil, err
	}
	m.Watch(b.runtime) // both until the metrics are closed
	m.WatchNode(node)
	// Transfers continue after a branch has failed: by default, the region keeps an index of the accounts
	// with pending transfers.
	opts := sharding.Options{Host: hostOptions, Shards: shards, MinMembers: cfg.members, Standbys: cfg.standbys, Strategy: sharding.Pure(measured{})}
	opts.Host.Supervise = b.supervise
	if cfg.state == stateDDATA { // by default, the state is in the journal
		replicator, failed := ddata.Start(ctx, node, ddata.Config{Observer: m.ReplicatorObserver()})
		if failed != nil {
			return nil, failed
		}
		opts.State = sharding.ReplicatedStores{Replicator: replicator}
	}
	if b.region, err = sharding.Host(ctx, node, b.runtime, b.typ, opts); err != nil {
		return nil, err
	}
	b.accounts = b.region
	if b.shown, err = b.agent(&b.meter, node, log); err != nil { //nolint:contextcheck // the agent runs until it is closed
		return nil, err
	}
	b.health = sharding.NewHealth(node, sharding.HealthConfig{Types: []string{b.typ.Name}})
	return b, nil
}

// measured gives each branch the same number of shards, and makes the branches measure the load of their
// shards, which the console shows. The load does not decide: an idle branch that has just started would
// get no shards from allocation.ByLoad, because the accounts of the example need little time.
type measured struct{ allocation.LeastShards }

// ReadsLoad requests the measurements.
func (measured) ReadsLoad() bool { return true }

// supervise decides what follows the failure of an account, and logs the decision. After a panic of a
// handler the balance is still that of the events, so the account need not be read again. All other
// failures restart the account: a directive that stops it would delay its pending transfers until its
// next command.
func (b *branch) supervise(cause error) eventsourcing.Directive {
	directive, name := eventsourcing.Restart, "restart"
	if _, panicked := errors.AsType[*eventsourcing.PanicError](cause); panicked {
		directive, name = eventsourcing.Resume, "resume"
	}
	b.logger.Warn("an account has failed", slog.String("directive", name), slog.Any("error", cause))
	return directive
}

// shutdown leaves the cluster in order: other branches take over the accounts.
func (b *branch) shutdown(ctx context.Context) error {
	return errors.Join(b.node.Shutdown(ctx), b.close()) //nolint:contextcheck // closing has its own time limits
}

// close waits until the node has ended, and closes the bank.
func (b *branch) close() error {
	<-b.node.Done()
	var errs []error
	if b.shown != nil {
		errs = append(errs, b.shown.Close())
	}
	if b.bank != nil {
		errs = append(errs, b.bank.close())
	}
	return errors.Join(append(errs, b.metrics.Close())...)
}

// runs reports whether the node has not begun to end.
func (b *branch) runs() bool { return !closed(b.node.Stopping()) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// failure returns the error that ended the node. It returns nil if the node runs, has left or was
// stopped.
func (b *branch) failure() error {
	err := b.node.Err()
	if err == nil || errors.Is(err, cluster.ErrLeft) || errors.Is(err, cluster.ErrStopped) {
		return nil
	}
	return fmt.Errorf("%s: %w", b.node.Self().Name, err)
}

// waitsFor describes why the branch cannot reach all accounts yet.
func (b *branch) waitsFor() string {
	switch s := b.node.State(); {
	case !s.Connected:
		return "the NATS servers: none of --nats responds"
	case !s.Joined:
		return "the other branches: none of --join admits it"
	}
	return "the coordinator of the accounts"
}

func branchNames(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("branch-%d", i+1))
	}
	return slices.Clip(all)
}

// api returns the API of the bank, with the health and state of the branch.
func (b *branch) api() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", b.metrics.serve(newAPI(b.bank, b.logger)))
	mux.Handle("GET /live", b.health)
	mux.Handle("GET /ready", b.health)
	mux.HandleFunc("GET /branch", b.describe)
	return mux
}

type branchBody struct {
	Branch  string       `json:"branch"`
	Members []memberBody `json:"members"`
	// Coordinator allocates the accounts to branches.
	Coordinator string `json:"coordinator,omitempty"`
	// Shards and Accounts count the local ones. Waiting counts waiting commands.
	Shards   int `json:"shards"`
	Accounts int `json:"accounts"`
	Waiting  int `json:"waiting"`
	// Standby counts the accounts of other branches whose state this branch keeps ready, and Prepared
	// the accounts that have started here with such a state.
	Standby  int   `json:"standby"`
	Prepared int64 `json:"prepared"`
}

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
		b.logger.ErrorContext(r.Context(), "the state of the branch is unavailable", slog.Any("error", err))
		http.Error(w, "the state of the branch is unavailable", http.StatusServiceUnavailable)
		return
	}
	if state.Registered {
		body.Coordinator = state.Coordinator.String()
	}
	body.Shards, body.Waiting = len(state.Shards), state.Waiting
	body.Standby, body.Prepared = state.Prepared, b.prepared.Load()
	for _, s := range state.Shards {
		body.Accounts += s.Tracked
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(body) // an error means that the client is gone
}
