// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
)

// TestAnswersThatDontCome: who has left without an answer of another node is forgotten.
func TestAnswersThatDontCome(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b")
		remote := uint64(0)
		for n := range 10 {
			p, err := ask(w, all[0], "d"+strconv.Itoa(n), write{By: "a"})
			w.must(err)
			if p.Node == "b" {
				remote++
			}
			short, cancel := context.WithTimeout(w.Context(), time.Second)
			_, err = eventsourcing.Ask(short, all[0].region.Ref("d"+strconv.Itoa(n)), ponder{Stay: true})
			cancel()
			w.wantErr(err, eventsourcing.ErrOutcomeUnknown, true)
		}
		w.sleep(30 * time.Second)
		if s, err := all[0].region.State(w.Context()); err != nil || s.Asks != 0 || s.Unanswered != remote || remote == 0 {
			w.Errorf("of %d answers from another node %d are awaited, %d not any more: %v", remote, s.Asks, s.Unanswered, err)
		}
	})
}

// TestTheBrokerIsAway: nodes that hear nothing host nothing, since others may begin to, and refuse commands; what ran is there again when
// they hear each other again.
func TestTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b", "c")
		w.spread(all, 12, 0)
		var back []func()
		for _, h := range all {
			back = append(back, w.network.Disconnect(h.Self().Name, errors.New("no broker")))
		}
		for _, h := range all {
			for !h.State().Suspended {
				w.sleep(time.Second)
			}
			w.sleep(time.Second)
			if n := h.rt.Resident()["diary"]; n != 0 {
				w.Errorf("%d are in memory on %v, which is suspended", n, h.Self())
			}
			_, err := ask(w, h, "d0", write{By: "nobody"})
			w.wantErr(err, sharding.ErrStopped, false)
		}
		w.sleep(30 * time.Second)
		for _, f := range back {
			f()
		}
		for _, h := range all {
			for h.State().Suspended {
				w.sleep(time.Second)
			}
		}
		w.sleep(30 * time.Second)
		if where := w.spread(all, 12, 1); len(where) < 2 {
			w.Errorf("all is on %v", where)
		}
		for d := range 12 {
			for _, h := range all {
				w.wrote(h, "d"+strconv.Itoa(d), h.Self().Name, 2)
			}
		}
	})
}
