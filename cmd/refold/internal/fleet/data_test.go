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
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/plugins/nats"
)

// dataCluster is a cluster of processes with replicated data.
type dataCluster struct {
	*scene

	crowd  *crowd
	access map[string]nats.Access
	data   dataConfig
}

// newDataCluster returns a cluster without nodes. REFOLD_SEED is the seed of the operations and
// faults.
func newDataCluster(t *testing.T, access map[string]nats.Access, data dataConfig) *dataCluster {
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
	return &dataCluster{scene: s, crowd: newCrowd(s, seed), access: access, data: data}
}

// start starts nodes that are not running.
func (h *dataCluster) start(seeds []string, names ...string) {
	h.t.Helper()
	for _, name := range names {
		delete(h.ids, name)
		delete(h.views, name)
		delete(h.ended, name)
		delete(h.gone, name)
		_, err := h.fleet.Start(patient(Node{
			Name: name, Cluster: clusterName, Seeds: seeds, Access: h.access[name], Extra: extra{Data: &h.data}.raw(),
			Downing: downing.Settings{DownAllWhenUnstable: -1}, // two nodes are killed one after the other
		}))
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// whole waits until all nodes are up, and each has exactly the running incarnations as members.
func (h *dataCluster) whole() {
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

// settle stops the clients, waits until all nodes have equal data, and checks the data.
func (h *dataCluster) settle() {
	h.t.Helper()
	h.whole()
	h.crowd.rest()
	h.crowd.same(h.names...)
	h.crowd.check(h.names...)
}

// kill kills nodes with SIGKILL.
func (h *dataCluster) kill(names ...string) {
	h.t.Helper()
	for _, name := range names {
		if err := h.fleet.Kill(name); err != nil {
			h.t.Fatal(err)
		}
	}
	h.until(fmt.Sprintf("%v have exited", names), func() bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !h.gone[n] })
	})
}

// some returns a random number of changes.
func (h *dataCluster) some() int { return 1 + h.crowd.rand.IntN(200) }

// others returns all nodes except the given ones.
func (h *dataCluster) others(but []string) []string {
	return slices.DeleteFunc(slices.Clone(h.names), func(n string) bool { return slices.Contains(but, n) })
}

// Of five nodes, two at a time are killed or partitioned while clients write. No change that a
// majority acknowledged is lost, and none counts twice.
func TestDataSurvivesFaults(t *testing.T) {
	t.Parallel()
	if quick(t) {
		return
	}
	rounds := 2
	if effort.Soak() {
		rounds = 20
	}
	left := []string{"a", "b"}
	split := natstest.StartSplit(t, natstest.Config{Users: nodes(t, []string{"a", "b", "c", "d", "e"})})
	access := map[string]nats.Access{"c": split.B.Access(t, "c"), "d": split.B.Access(t, "d"), "e": split.B.Access(t, "e")}
	for _, name := range left {
		access[name] = split.A.Access(t, name)
	}
	h := newDataCluster(t, access, dataConfig{})
	h.start(h.names, h.names...)
	h.whole()
	for round := range rounds {
		began := time.Now()
		h.crowd.resume()
		h.crowd.until(h.some())
		victims, subject := left, "were partitioned"
		old := maps.Clone(h.ids)
		if round%2 == 1 {
			split.Cut()
			h.until("the minority has ended", func() bool { return h.gone["a"] && h.gone["b"] })
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
		if effort.Soak() && h.crowd.rand.IntN(2) == 0 {
			h.until("the victims were removed", func() bool { return h.removed(survivors, victims, old) })
			h.crowd.until(h.some())
			subject += " and removed"
		}
		h.start(survivors, victims...)
		h.settle()
		t.Logf("%v %s; %d changes; took %v", victims, subject, h.crowd.acked, time.Since(began))
	}
	t.Logf("added %+v, %d elements; errors: %v", h.crowd.count, h.crowd.names, h.crowd.why)
}

// removed reports whether the former incarnations are no longer members in the view of the
// survivors.
func (h *dataCluster) removed(survivors, victims []string, old map[string]identity.Node) bool {
	for _, s := range survivors {
		for _, v := range victims {
			if h.views[s].Has(old[v]) {
				return false
			}
		}
	}
	return true
}

// All nodes are killed repeatedly while clients write durable keys. No acknowledged change is lost,
// even if only one node acknowledged it.
func TestDurableDataSurvivesKills(t *testing.T) {
	t.Parallel()
	if quick(t) {
		return
	}
	rounds := 2
	if effort.Soak() {
		rounds = 20
	}
	server := natstest.Start(t, natstest.Config{Users: nodes(t, []string{"a", "b", "c"})})
	access := map[string]nats.Access{}
	for _, name := range []string{"a", "b", "c"} {
		access[name] = server.Access(t, name)
	}
	h := newDataCluster(t, access, dataConfig{Dir: t.TempDir()})
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
		t.Logf("all nodes were killed; %d changes; took %v", h.crowd.acked, time.Since(began))
	}
	t.Logf("added %+v, %d elements; errors: %v", h.crowd.count, h.crowd.names, h.crowd.why)
}
