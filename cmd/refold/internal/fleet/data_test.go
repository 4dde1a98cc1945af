// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/cmd/refold/internal/fleet"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/plugins/nats"
)

// holders is a cluster of processes that hold replicated data.
type holders struct {
	*scene

	crowd  *crowd
	access map[string]nats.Access
	data   fleet.Data
}

// newHolders returns them without nodes. REFOLD_SEED names the seed of what clients do and what fails.
func newHolders(t *testing.T, access map[string]nats.Access, data fleet.Data) *holders {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("REFOLD_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("REFOLD_SEED=%d", seed)
	s := emptyScene(t, slices.Sorted(maps.Keys(access))...)
	return &holders{scene: s, crowd: newCrowd(s, seed), access: access, data: data}
}

// start starts nodes that are not running.
func (h *holders) start(seeds []string, names ...string) {
	h.t.Helper()
	for _, name := range names {
		delete(h.ids, name)
		delete(h.views, name)
		delete(h.ended, name)
		delete(h.gone, name)
		_, err := h.fleet.Start(patient(fleet.Node{
			Name: name, Cluster: clusterName, Seeds: seeds, Access: h.access[name], Data: &h.data,
			Downing: downing.Settings{DownAllWhenUnstable: -1}, // two that are killed one after the other are no reason to give up
		}))
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// whole waits until all nodes run, and each of them takes just the others for the members, all of them up.
func (h *holders) whole() {
	h.t.Helper()
	h.until("all nodes are up", func() bool {
		if !h.agree(h.names...) {
			return false
		}
		for _, name := range h.names {
			for _, v := range h.views {
				if !v.Has(h.ids[name]) {
					return false
				}
			}
		}
		return true
	})
}

// settle lets the clients rest, waits until all nodes hold the same, and looks whether it is right.
func (h *holders) settle() {
	h.t.Helper()
	h.whole()
	h.crowd.rest()
	h.crowd.same(h.names...)
	h.crowd.check(h.names...)
}

// kill kills nodes with SIGKILL.
func (h *holders) kill(names ...string) {
	h.t.Helper()
	for _, name := range names {
		if err := h.fleet.Kill(name); err != nil {
			h.t.Fatal(err)
		}
	}
	h.until(fmt.Sprintf("%v are gone", names), func() bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !h.gone[n] })
	})
}

// some is a number of changes, small or large.
func (h *holders) some() int { return 1 + h.crowd.rand.IntN(200) }

// others are the nodes but for some.
func (h *holders) others(but []string) []string {
	return slices.DeleteFunc(slices.Clone(h.names), func(n string) bool { return slices.Contains(but, n) })
}

// Of five nodes two at a time are killed or cut off, under changes. Nothing that was acknowledged
// by a majority is lost, and nothing counts twice.
func TestDataSurvives(t *testing.T) {
	t.Parallel()
	rounds := 2
	if soaking() {
		rounds = 20
	}
	left := []string{"a", "b"}
	split := natstest.StartSplit(t, natstest.Config{Users: nodes(t, []string{"a", "b", "c", "d", "e"})})
	access := map[string]nats.Access{"c": split.B.Access(t, "c"), "d": split.B.Access(t, "d"), "e": split.B.Access(t, "e")}
	for _, name := range left {
		access[name] = split.A.Access(t, name)
	}
	h := newHolders(t, access, fleet.Data{})
	h.start(h.names, h.names...)
	h.whole()
	for round := range rounds {
		began := time.Now()
		h.crowd.resume()
		h.crowd.until(h.some())
		victims, subject := left, "were cut off"
		old := maps.Clone(h.ids)
		if round%2 == 1 {
			split.Cut()
			h.until("the smaller side has ended", func() bool { return h.gone["a"] && h.gone["b"] })
			split.Heal()
		} else {
			subject = "were killed"
			victims = slices.Clone(h.names)
			h.crowd.rand.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
			victims = victims[:1+h.crowd.rand.IntN(2)]
			for _, name := range victims {
				h.kill(name)
				h.crowd.until(h.some())
			}
		}
		survivors := h.others(victims)
		if soaking() && h.crowd.rand.IntN(2) == 0 {
			h.until("those that are gone were removed", func() bool { return h.removed(survivors, victims, old) })
			h.crowd.until(h.some())
			subject += " and removed"
		}
		h.start(survivors, victims...)
		h.settle()
		t.Logf("%v %s; %d changes so far; took %v", victims, subject, h.crowd.acked, time.Since(began))
	}
	t.Logf("counted %+v, %d elements; failed: %v", h.crowd.count, h.crowd.names, h.crowd.why)
}

// removed reports whether some nodes don't take former ones for members any more.
func (h *holders) removed(survivors, victims []string, old map[string]identity.Node) bool {
	for _, s := range survivors {
		for _, v := range victims {
			if h.views[s].Has(old[v]) {
				return false
			}
		}
	}
	return true
}

// All nodes are killed, under changes of durable keys, again and again. Nothing that was
// acknowledged is lost, not even by one node only.
func TestDurableDataSurvives(t *testing.T) {
	t.Parallel()
	rounds := 2
	if soaking() {
		rounds = 20
	}
	server := natstest.Start(t, natstest.Config{Users: nodes(t, []string{"a", "b", "c"})})
	access := map[string]nats.Access{}
	for _, name := range []string{"a", "b", "c"} {
		access[name] = server.Access(t, name)
	}
	h := newHolders(t, access, fleet.Data{Dir: t.TempDir()})
	h.crowd.local = true
	h.start(h.names, h.names...)
	h.whole()
	for range rounds {
		began := time.Now()
		h.crowd.resume()
		h.crowd.until(h.some())
		h.crowd.rand.Shuffle(len(h.names), func(i, j int) { h.names[i], h.names[j] = h.names[j], h.names[i] })
		h.kill(h.names...)
		h.start(h.names, h.names...)
		h.settle()
		t.Logf("all were killed; %d changes so far; took %v", h.crowd.acked, time.Since(began))
	}
	t.Logf("counted %+v, %d elements; failed: %v", h.crowd.count, h.crowd.names, h.crowd.why)
}
