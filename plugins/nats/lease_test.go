// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/lease/leasetest"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

func openLeases(tb testing.TB, cfg nats.LeasesConfig) *nats.Leases {
	tb.Helper()
	cfg.ConnectTimeout = patience
	ctx, cancel := context.WithTimeout(tb.Context(), patience) // without a deadline each call takes at most 5 s
	defer cancel()
	s, err := nats.OpenLeases(ctx, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestLeases(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	clusters := make(map[lease.Store]string)
	cfg := func(cluster string, timeout time.Duration) nats.LeasesConfig {
		return nats.LeasesConfig{Access: s.Access(), Cluster: cluster, Name: "a", Timeout: timeout}
	}
	opened := make(chan struct{}, 1)
	leasetest.Run(t, leasetest.Config{
		Late: time.Minute, // the server checks periodically for expired entries
		Open: func(tb testing.TB, timeout time.Duration) lease.Store {
			tb.Helper()
			opened <- struct{}{}
			defer func() { <-opened }()
			cluster := fmt.Sprint("c:", len(clusters))
			store := openLeases(tb, cfg(cluster, timeout))
			clusters[store] = cluster
			return store
		},
		Attach: func(tb testing.TB, store lease.Store) lease.Store {
			tb.Helper()
			opened <- struct{}{}
			defer func() { <-opened }()
			return openLeases(tb, cfg(clusters[store], store.Timeout()))
		},
	})
}

// A held lease stays held when the server restarts.
func TestLeasesAfterServerRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, at := startLasting(t, dir)
	cfg := nats.LeasesConfig{Access: first.Access(), Cluster: "c", Name: "a", Timeout: time.Hour}
	store := openLeases(t, cfg)
	defer func() { _ = store.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	revision, err := store.Create(ctx, "n", "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if _, err := store.Renew(short, "n", "a", revision); err == nil || errors.Is(err, lease.ErrConflict) {
		t.Errorf("Renew without a server: %v, want an error other than ErrConflict", err)
	}
	start(t, embedded.Config{Dir: dir, Port: at})
	other := openLeases(t, cfg)
	defer func() { _ = other.Close() }()
	if e, err := other.Get(ctx, "n"); err != nil || e != (lease.Entry{Owner: "a", Revision: revision}) {
		t.Errorf("Get after the restart: %+v, %v, want owner a at revision %d", e, err, revision)
	}
}

func TestLeasePermissions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := nats.LeasePermissions("c", "a.example:1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	user := allowed(t, "a")
	user.Permissions.Publish.Allow = append(user.Permissions.Publish.Allow, p.Publish...)
	user.Permissions.Subscribe.Allow = append(user.Permissions.Subscribe.Allow, p.Subscribe...)
	s := start(t, embedded.Config{Configure: func(o *server.Options) {
		o.Authorization = ""
		o.Users = []*server.User{user}
	}})
	cfg := nats.LeasesConfig{
		Access:  nats.Access{URLs: []string{s.URL()}, TokenFile: write(t, "token", "a:secret-a")},
		Cluster: "c", Name: "a.example:1", Timeout: time.Hour,
	}
	store := openLeases(t, cfg)
	defer func() { _ = store.Close() }()
	revision, err := store.Create(ctx, "n", "a")
	if err != nil {
		t.Fatal(err)
	}
	if revision, err = store.Renew(ctx, "n", "a", revision); err != nil {
		t.Error(err)
	}
	if e, err := store.Get(ctx, "n"); err != nil || e.Owner != "a" {
		t.Errorf("Get = %+v, %v, want owner a", e, err)
	}
	if err := store.Delete(ctx, "n", revision); err != nil {
		t.Error(err)
	}
}

func TestOpenLeasesErrors(t *testing.T) {
	t.Parallel()
	_, err := nats.OpenLeases(t.Context(), nats.LeasesConfig{Cluster: "a.b", Timeout: 1, Replicas: 9})
	for _, field := range []string{"URLs", "Cluster", "Name", "Timeout", "Replicas"} {
		if !errors.Is(err, nats.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("the error does not name %s: %v, want ErrInvalid", field, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = nats.OpenLeases(ctx, nats.LeasesConfig{Access: nats.Access{URLs: []string{"nats://127.0.0.1:1"}}, Cluster: "c", Name: "a"})
	if err == nil {
		t.Error("OpenLeases succeeded without a server")
	}
}
