// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// A region sends its settings. A rejected region repeats its registration and reports the reason
// until it is accepted.
func TestRejectedRegion(t *testing.T) {
	t.Parallel()
	ours, theirs := coordinator.Settings{Shards: 100}, coordinator.Settings{Shards: 200}
	m := start(t, region.Config{Settings: ours})
	refused := coordinator.Message{Kind: coordinator.Refused, Term: 7, Round: 1, Settings: theirs}
	out := receive(m, refused)
	by, why := m.Refused()
	if m.Registered() || by != node("c") || why == nil || *why != theirs || !hasMessage(out, coordinator.Register) {
		t.Fatalf("Refused: %+v, by %v, settings %v, want the settings of c and another Register", out, by, why)
	}
	if out = receive(m, refused); len(out.Messages) != 0 {
		t.Errorf("a second Refused: %+v, want no message", out)
	}
	out = m.Tick(time.Minute)
	if !hasMessage(out, coordinator.Register) || out.Messages[0].Message.Settings != ours {
		t.Errorf("after a minute: %+v, want Register with the settings of this region", out)
	}
	receive(m, coordinator.Message{Kind: coordinator.RegisterAck, Term: 7, Round: 1})
	if _, why = m.Refused(); !m.Registered() || why != nil {
		t.Errorf("after RegisterAck: %v, want no rejection", why)
	}
}
