// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// Buffered returns the messages that wait for a home. Drop refuses an abandoned message once.
func TestDropRefusesAbandonedMessages(t *testing.T) {
	t.Parallel()
	d := drive(t, "b", "a")
	d.step(shardcore.Send{Shard: 1, Message: message()})
	d.now = time.Second
	d.arrive(region.Frame{Kind: region.Forward, Shard: 1}, "y")
	d.now = time.Minute
	waiting := slices.Collect(d.m.Buffered(d.now))
	if len(waiting) != 2 || waiting[0].Entity != "y" || string(waiting[0].Body) != "hello" || waiting[0].Waited != 59*time.Second ||
		waiting[1].Local != "hello" || waiting[1].Waited != time.Minute {
		t.Fatalf("Buffered() = %+v, want two messages", waiting)
	}
	for range d.m.Buffered(d.now) {
		break
	}
	drop := shardcore.Drop{Tokens: []uint64{waiting[1].Token, 99}}
	out := d.step(drop)
	if len(out.Refused) != 1 || out.Refused[0].Reason != shardcore.Abandoned || out.Refused[0].Message.Local != "hello" || d.m.Waiting() != 1 {
		t.Errorf("after Drop: %+v, want hello refused as abandoned and 1 waiting message", out)
	}
	if out = d.step(drop); len(out.Refused) != 0 {
		t.Errorf("after a second Drop: %+v, want no refusal", out)
	}
}

// Silence returns how long no coordinator has replied. Candidates returns the receivers of
// requests.
func TestSilence(t *testing.T) {
	t.Parallel()
	d := drive(t, "b", "a")
	d.now = time.Minute
	d.m.Tick(d.now)
	if asked := d.m.Candidates(); d.m.Silence() != time.Minute || len(asked) != 1 || asked[0] != node("b") {
		t.Errorf("Silence() = %v, Candidates() = %v, want 1m and b only", d.m.Silence(), asked)
	}
	d.setMembers(identity.Leaving, "a", "b")
	if asked := d.m.Candidates(); len(asked) != 2 || asked[0] != node("a") {
		t.Errorf("Candidates() = %v, want a and b, the oldest first", asked)
	}
}
