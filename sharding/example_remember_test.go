// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
)

// Entities that ran when all nodes were stopped run again without a command after one node has
// started.
func ExampleOptions_remember() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	opts := sharding.Options{Shards: 20, Remember: sharding.JournalStores{Journal: journal}}
	a, err := openBranch(ctx, network, journal, "a:1", opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"1", "2", "3"} {
		fmt.Println(eventsourcing.Ask(ctx, a.region.Ref(id), Deposit{Amount: 10}))
	}
	fmt.Println("all stop:", a.close(ctx))
	if a, err = openBranch(ctx, network, journal, "a:1", opts); err != nil {
		fmt.Println(err)
		return
	}
	defer a.stop(ctx)
	for {
		s, err := a.region.Statistics(ctx, time.Minute)
		if err != nil {
			fmt.Println(err)
			return
		}
		if s.Entities() == 3 {
			fmt.Println("they run again")
			return
		}
	}
	// Output:
	// 10 <nil>
	// 10 <nil>
	// 10 <nil>
	// all stop: <nil>
	// they run again
}

// The endpoints for the probes of a platform: GET /live and GET /ready.
func ExampleNewHealth() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	a, err := openBranch(ctx, inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal(), "a:1", sharding.Options{Shards: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.stop(ctx)
	health := sharding.NewHealth(a.node, sharding.HealthConfig{})
	answer := httptest.NewRecorder()
	health.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/ready", http.NoBody))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 200 ok
}
