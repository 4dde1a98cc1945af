// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
)

// serving opens one more branch with its own StableAfter, and returns its output.
func (c *chain) serving(name string, stableAfter time.Duration) (*branches, *lockedBuffer) {
	c.Helper()
	return c.servingWith(name, stableAfter, c.state)
}

func (c *chain) servingWith(name string, stableAfter time.Duration, state string) (*branches, *lockedBuffer) {
	c.Helper()
	self, err := identity.New(name)
	if err != nil {
		c.Fatal(err)
	}
	c.network.Inject(inmem.Fault{Delay: time.Millisecond}) // messages of others arrive after the start
	out := &lockedBuffer{}
	b, err := openBranch(c.Context(), branchConfig{
		cluster: "bank", carrier: c.network.Carrier(self), seeds: branchNames(3), state: state, standbys: c.standbys,
		downing: downing.Settings{StableAfter: stableAfter, DownAllWhenUnstable: -1}, logger: slog.New(slog.NewTextHandler(c.log, nil)),
	}, c.store, parseRates(c.T, testRates))
	if err != nil {
		c.Fatal(err)
	}
	return &branches{app: &app{stdout: out, stderr: out}, remote: true, stopPage: func() {}, all: []*branch{b}}, out
}

// A branch that the cluster rejects reports the reason, and not the failures that follow from it.
func TestRejectedBranch(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		o, _ := c.serving("branch-4", 6*time.Second)
		err := o.ready(c.Context())
		if err = o.giveUp(err); !errors.Is(err, cluster.ErrIncompatible) || strings.Contains(err.Error(), "has stopped") {
			c.Error(err)
		}
	})
}

// A branch whose region is rejected leaves the cluster, so that the others do not find it
// unreachable.
func TestMismatchedBranchLeaves(t *testing.T) {
	t.Parallel()
	others := map[string]string{stateJournal: stateDDATA, stateDDATA: stateJournal}
	onBranches(t, func(c *chain) {
		o, _ := c.servingWith("branch-4", 5*time.Second, others[c.state])
		if err := o.all[0].node.AwaitUp(c.Context()); err != nil {
			c.Fatal(err)
		}
		if err := o.giveUp(o.ready(c.Context())); !errors.Is(err, sharding.ErrMismatch) {
			c.Errorf("the branch ended with %v, want ErrMismatch", err)
		}
		if err := o.all[0].node.Err(); !errors.Is(err, cluster.ErrLeft) {
			c.Errorf("the node ended with %v, want ErrLeft", err)
		}
	})
}

// A branch that cannot join prints the reason why it waits.
func TestWaitingBranch(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		for name := range c.branches {
			c.leave(name)
		}
		o, out := c.serving("branch-3", 5*time.Second)
		ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
		defer cancel()
		if err := o.ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			c.Error(err)
		}
		if got := out.String(); got != "branch-3 waits for the other branches: none of --join admits it\n" {
			c.Error(got)
		}
		if err := o.giveUp(nil); err != nil {
			c.Error(err)
		}
	})
}

// A request can stop a branch only if all branches are in one process.
func TestStopBranch(t *testing.T) {
	t.Parallel()
	onBranches(t, func(c *chain) {
		o := &branches{app: &app{stdout: c.log}, whole: true}
		for _, b := range c.branches {
			o.all = append(o.all, b)
		}
		remove := func(path string, want int) {
			c.Helper()
			w := httptest.NewRecorder()
			o.handler(c.branches["branch-1"]).ServeHTTP(w, httptest.NewRequestWithContext(c.Context(), http.MethodDelete, path, http.NoBody))
			if w.Code != want {
				c.Errorf("DELETE %s: status %d, %s; want %d", path, w.Code, w.Body.String(), want)
			}
		}
		remove("/nodes/branch-9", http.StatusNotFound)
		remove("/nodes/branch-2", http.StatusOK)
		<-c.branches["branch-2"].node.Done()
		if err := c.branches["branch-2"].node.Err(); !errors.Is(err, cluster.ErrStopped) {
			c.Error(err)
		}
		o.whole = false
		remove("/nodes/branch-1", http.StatusNotFound)
	})
}
