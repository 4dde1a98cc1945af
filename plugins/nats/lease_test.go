// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/lease/leasetest"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

// createBucket creates the bucket of the leases, as an operator.
func createBucket(tb testing.TB, cfg nats.LeasesConfig) {
	tb.Helper()
	cfg.ConnectTimeout, cfg.Name = patience, "ops"
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := nats.CreateLeaseBucket(ctx, cfg); err != nil {
		tb.Fatal(err)
	}
}

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
			createBucket(tb, cfg(cluster, timeout))
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
	createBucket(t, cfg)
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
	q, err := nats.OperatorPermissions("c", "ops", transport.AdminAct)
	if err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t, natstest.Config{JetStream: true, Users: []natstest.User{
		{Name: "a", Permissions: p}, {Name: "ops", Permissions: q.And(nats.LeaseBucketPermissions("c", time.Hour))}, {Name: "root"},
	}})
	cfg := nats.LeasesConfig{Access: s.Access(t, "a"), Cluster: "c", Name: "a.example:1", Timeout: time.Hour}
	byOperator := cfg
	byOperator.Access, byOperator.Name = s.Access(t, "ops"), "ops"

	// A node cannot create the bucket.
	if _, err = nats.OpenLeases(ctx, cfg); !errors.Is(err, jetstream.ErrStreamNotFound) || !strings.Contains(err.Error(), "CreateLeaseBucket") {
		t.Errorf("OpenLeases without a bucket: %v, want ErrStreamNotFound and the name of CreateLeaseBucket", err)
	}
	short, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	if err = nats.CreateLeaseBucket(short, cfg); err == nil {
		t.Error("CreateLeaseBucket succeeded with the permissions of a node")
	}
	createBucket(t, byOperator)
	createBucket(t, byOperator)
	store := openLeases(t, cfg)
	defer func() { _ = store.Close() }()
	revision, err := store.Create(ctx, "n", "a")
	if err != nil {
		t.Fatal(err)
	}
	if revision, err = store.Renew(ctx, "n", "a", revision); err != nil {
		t.Error(err)
	}
	if e, failed := store.Get(ctx, "n"); failed != nil || e.Owner != "a" {
		t.Errorf("Get = %+v, %v, want owner a", e, failed)
	}
	if err = store.Delete(ctx, "n", revision); err != nil {
		t.Error(err)
	}

	// A node refuses a bucket with other settings. The operator corrects them.
	nc, err := natsgo.Connect("nats://"+s.Addr(), natsgo.UserInfo("root", "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "KV_refold_lease_c_3600000")
	if err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*jetstream.StreamConfig){
		"Subjects":          func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "refold.c.>") },
		"MaxAge":            func(c *jetstream.StreamConfig) { c.MaxAge = time.Minute; c.Duplicates = time.Second },
		"MaxMsgs":           func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 },
		"MaxMsgsPerSubject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 },
		"AllowDirect":       func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"RePublish": func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: ">", Destination: "refold.c.>"}
		},
		"NoAck": func(c *jetstream.StreamConfig) { c.NoAck = true },
		"SubjectTransform": func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "x", Destination: "y"}
		},
	} {
		changed := stream.CachedInfo().Config
		changed.Subjects = slices.Clone(changed.Subjects)
		change(&changed)
		if _, err = js.UpdateStream(ctx, changed); err != nil {
			t.Fatalf("change %s: %v", field, err)
		}
		if _, err = nats.OpenLeases(ctx, cfg); !errors.Is(err, nats.ErrInvalid) || !strings.Contains(err.Error(), "StreamConfig."+field+" is") {
			t.Errorf("OpenLeases with another %s: %v, want ErrInvalid and the name of the setting", field, err)
		}
		createBucket(t, byOperator)
		if err = openLeases(t, cfg).Close(); err != nil {
			t.Error(err)
		}
	}
	if err = js.DeleteKeyValue(ctx, "refold_lease_c_3600000"); err != nil {
		t.Fatal(err)
	}
	legacy := jetstream.KeyValueConfig{Bucket: "refold_lease_c_3600000", History: 1, TTL: time.Hour, Storage: jetstream.FileStorage, Replicas: 1}
	if _, err = js.CreateKeyValue(ctx, legacy); err != nil {
		t.Fatal(err)
	}
	if _, err = nats.OpenLeases(ctx, cfg); !errors.Is(err, nats.ErrInvalid) || !strings.Contains(err.Error(), "StreamConfig.AllowDirect is") {
		t.Errorf("OpenLeases with a bucket of the settings of a NATS client: %v, want ErrInvalid and AllowDirect", err)
	}
	createBucket(t, byOperator)
	described := stream.CachedInfo().Config
	described.Description, described.Metadata = "ours", map[string]string{"team": "payments"}
	if _, err := js.UpdateStream(ctx, described); err != nil {
		t.Fatal(err)
	}
	if err := openLeases(t, cfg).Close(); err != nil {
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
