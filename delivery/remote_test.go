// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// TestAnswersFromOtherNodes checks that a reply from another node has the same meaning as a local
// one: a refusal ends a delivery as refused, an error lets the delivery be sent again, and a value
// has the declared reply type.
func TestAnswersFromOtherNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			sharding hosting.Sharding
			options  eventsourcing.HostOptions
			mu       sync.Mutex
			received []string
			credits  int
		)
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close(context.Background()) //nolint:errcheck // nothing is in flight
		p := &probe{signal: func(_ string, s eventsourcing.Signal) {
			if a, ok := s.(delivery.Answered[Credit, int]); ok {
				mu.Lock()
				defer mu.Unlock()
				received = append(received, fmt.Sprintf("%d: %T %v, attempt %d", a.Nr, a.Value, a.Err, a.Attempt))
			}
		}}
		answers := hosting.RemoteOf[eventsourcing.Entities[Account], *eventsourcing.Runtime](accountType(p).Protocol())
		route := func(m hosting.Message) error {
			credit, ok := m.Command().(Credit)
			if !ok {
				return sharding.Host.Deliver(m)
			}
			mu.Lock()
			credits++
			first := credits == 1
			mu.Unlock()
			if first { // the entity has just left the node
				m.AnswerEncoded(answers.AppendReply(nil, nil, fmt.Errorf("the entity moves: %w", eventsourcing.ErrStopped)))
				return nil
			}
			return sharding.Host.Deliver(answers.NewMessage(context.Background(), m.ID(), credit, time.Time{}, func(value any, err error) {
				m.AnswerEncoded(answers.AppendReply(nil, value, err))
			}, nil))
		}
		sharding.Hooks.Route = route
		hosting.Shard(&options, &sharding)
		entities, err := eventsourcing.HostWith(rt, accountType(p), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b", "c"} {
			if _, err = eventsourcing.Ask(t.Context(), entities.Ref(id), Deposit{Amount: 10}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err = eventsourcing.Ask(t.Context(), entities.Ref("c"), Lock{Locked: true}); err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"b", "c"} {
			if _, err = eventsourcing.Ask(t.Context(), entities.Ref("a"), Transfer{To: to, Amount: 3}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // in the bubble: the delivery is sent again
			synctest.Wait()
		}
		want := "1: int <nil>, attempt 2\n2: int the account is locked, attempt 1"
		if got := strings.Join(received, "\n"); got != want {
			t.Errorf("the sender received\n%s\nwant\n%s", got, want)
		}
		for id, balance := range map[string]int{"a": 7, "b": 13, "c": 10} {
			if r, err := eventsourcing.Ask(t.Context(), entities.Ref(id), Lookup{}); err != nil || r.Balance != balance || r.InFlight != 0 {
				t.Errorf("%s has %+v, %v; want the balance %d", id, r, err, balance)
			}
		}
	})
}
