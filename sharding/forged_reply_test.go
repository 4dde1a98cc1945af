// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

// A reply counts only if it comes from a node that may host the entity, and with the number of the
// ask. Numbers cannot be guessed.
func TestForgedReplies(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role = "library"
		a, b := w.start("a", "library"), w.start("b", "library")
		evil := w.join("c")
		w.up(a, b, evil)
		w.sleep(5 * time.Second) // the region of b registers
		id := w.homeOf(a, b)
		refusal := func(number uint64) []byte { return append(binary.AppendUvarint([]byte{0x10, 1}, number), 3) }
		asked := make(chan error, 1)
		go func() {
			_, err := ask(w, a, id, ponder{})
			asked <- err
		}()
		w.sleep(500 * time.Millisecond)
		for number := range uint64(2000) {
			w.must(b.Transport().Send(a.Self(), transport.Data, kindReply, refusal(number)))
		}
		w.must(<-asked)
		// Node b passes the command to c, which may not host diaries.
		var mu sync.Mutex
		var numbers []uint64
		b.Transport().Handle(kindRegion, func(_ context.Context, m transport.Message) {
			if p, err := region.DecodePacket(m.Payload); err == nil && p.Kind == region.Forward {
				r := wire.NewReader(p.Body, 0x10, 1<<20, errTear)
				r.Byte("flags")
				r.Node()
				mu.Lock()
				defer mu.Unlock()
				numbers = append(numbers, r.Uint(1<<63, "number"))
			}
		})
		for i := range 3 {
			go func() {
				_, err := ask(w, a, id, read{})
				asked <- err
			}()
			w.sleep(time.Second)
			w.must(evil.Transport().Send(a.Self(), transport.Data, kindReply, refusal(numbers[i])))
			w.sleep(time.Second)
			if len(asked) > 0 {
				w.Errorf("a reply of a node without the role was accepted: %v", <-asked)
				continue
			}
			w.must(b.Transport().Send(a.Self(), transport.Data, kindReply, refusal(numbers[i])))
			if err := <-asked; !errors.Is(err, sharding.ErrHandOff) {
				w.Errorf("the refusal of the home: %v, want ErrHandOff", err)
			}
		}
		if d := int64(numbers[1] - numbers[0]); max(d, -d) < 1<<40 {
			w.Errorf("the numbers %d are consecutive", numbers)
		}
	})
}

// homeOf returns the ID of a diary on a node.
func (w *world) homeOf(from, on *host) string {
	w.Helper()
	for i := range 1000 {
		id := fmt.Sprint("home", i)
		p, err := ask(w, from, id, write{By: "a"})
		w.must(err)
		if p.Node == on.Self().Name {
			return id
		}
	}
	w.Fatalf("no diary is on %v", on.Self())
	return ""
}
