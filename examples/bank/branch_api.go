// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/refold-io/refold/eventsourcing"
)

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
