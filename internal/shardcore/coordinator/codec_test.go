// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

func messages() []coordinator.Message {
	one := []shard{3}
	return []coordinator.Message{
		{Kind: coordinator.Register, Type: "account", Instance: 1},
		{Kind: coordinator.RegisterProxy, Type: "account"},
		{Kind: coordinator.GetHomes, Type: "account", Term: 3, Shards: []shard{0, 127, 128, 99_999}},
		{Kind: coordinator.Hosted, Type: "account", Term: 3, Round: 300, Shards: one},
		{Kind: coordinator.BeginHandOffAck, Type: "account", Term: 3, Round: 1 << 40},
		{Kind: coordinator.Stopped, Type: "account", Term: 3, Round: 9, Shards: one},
		{Kind: coordinator.GracefulShutdown, Type: "a", Instance: 1 << 63},
		{Kind: coordinator.RegionStopped, Type: "", Instance: 2},
		{Kind: coordinator.Fenced, Type: strings.Repeat("x", coordinator.MaxTypeLength), Term: 1 << 63},
		{Kind: coordinator.Fenced + 1, Type: "account", Shards: one}, // retired, but its number stays taken
		{Kind: coordinator.RegisterAck, Type: "account", Term: 3, Round: 1},
		{Kind: coordinator.Homes, Type: "account", Term: 3, Round: 2, Homes: []coordinator.Home{{Node: node("a"), Shards: []shard{1, 2}}, {Node: node("b:7400"), Shards: []shard{4}}}},
		{Kind: coordinator.Host, Type: "account", Term: 3, Round: 2, Shards: one},
		{Kind: coordinator.BeginHandOff, Type: "account", Term: 3, Round: 4, Shards: []shard{9, 8}},
		{Kind: coordinator.HandOff, Type: "account", Term: 3, Round: 4, Shards: one},
		{Kind: coordinator.RegisterAgain, Type: "account", Term: 4, Round: 4},
		{Kind: coordinator.Register, Type: "account", Instance: 1, Settings: coordinator.Settings{Shards: 1000, Routing: 1 << 63, Role: "bank", State: "journal", Remember: "none"}},
		{Kind: coordinator.RegisterProxy, Type: "account", Instance: 1, Settings: coordinator.Settings{Shards: 1}},
		{Kind: coordinator.Refused, Type: "account", Term: 4, Round: 4, Instance: 1, Settings: coordinator.Settings{Shards: 200, Routing: 7}},
		{Kind: coordinator.Hosted, Type: "account", Term: 4, Instance: 1, Load: &coordinator.Load{
			Window: 10 * time.Second, CPU: 9 * time.Millisecond, Cores: 4, Memory: 1 << 30, Busy: time.Second, Commands: 12_345, Shards: []coordinator.ShardLoad{
				{Shard: 3, Busy: 700 * time.Millisecond, Commands: 12_000, Waiting: 5, Entities: 70}, {Shard: 99_999, Busy: time.Microsecond, Commands: 1},
			},
		}},
		{Kind: coordinator.Hosted, Type: "account", Load: &coordinator.Load{}},
		{Kind: coordinator.Hosted, Type: "account", Term: 3, Round: 2, Instance: 1, Followed: "1:40000"},
	}
}

func events() []event {
	return []event{
		{Kind: coordinator.Started, Term: 300, Node: identity.Node{Name: "orders-1:7400", UID: 1<<64 - 1}},
		{Kind: coordinator.RegionRegistered, Node: node("a")},
		{Kind: coordinator.ProxyRegistered, Node: node(strings.Repeat("p", identity.MaxNameLength))},
		{Kind: coordinator.RegionTerminated, Node: node("a")},
		{Kind: coordinator.ProxyTerminated, Node: node("p")},
		allocated("a", 5, 4, 99_999),
		deallocated(4, 128),
		pinned("a", 3, 99_999),
		released(300),
	}
}

func states(t *testing.T) []coordinator.State {
	t.Helper()
	return []coordinator.State{
		{},
		apply(t, started(1)),
		apply(t, append(registered("orders-1:7400", "orders-10:7400", "x"), started(9), allocated("x", 9, 1, 300), allocated("orders-10:7400", 0, 99_999),
			event{Kind: coordinator.ProxyRegistered, Node: node("p1")}, event{Kind: coordinator.ProxyRegistered, Node: node("p2")})...),
		apply(t, append(registered("a"), allocated("a", 1), pinned("b", 300), pinned("a", 2, 7))...),
	}
}

// golden compares encodings with a golden file of version 1. The file never changes. Each line is
// one encoding.
func golden(t *testing.T, name string, encoded [][]byte, decode func([]byte) (any, error)) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(b))
	for i, e := range encoded {
		if i >= len(lines) || hex.EncodeToString(e) != lines[i] {
			t.Errorf("value %d is encoded as\n%x\nwant its line in the golden file", i, e)
			continue
		}
		want, err := decode(e)
		if err != nil {
			t.Errorf("decode value %d: %v", i, err)
		}
		more := []byte{1, 2, 3}
		switch {
		case strings.HasPrefix(name, "messages"):
			more = append(make([]byte, 4), more...) // the fields of 1.1 to 1.4
		case strings.HasPrefix(name, "states") && e[0] == 0x10:
			more = append([]byte{0}, more...) // the pins of 1.1
		}
		newer := append([]byte{0x1f}, append(e[1:len(e):len(e)], more...)...)
		if got, err := decode(newer); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("value %d with fields of a newer version: %+v, %v, want the same value", i, got, err)
		}
		if got, err := decode(append(slices.Clip(e), 0)); !errors.Is(err, coordinator.ErrMalformed) {
			t.Errorf("value %d with a trailing byte: %+v, %v, want ErrMalformed", i, got, err)
		}
		for n := range e {
			if got, err := decode(e[:n]); !errors.Is(err, coordinator.ErrMalformed) {
				t.Errorf("truncated encoding %x: %+v, %v, want ErrMalformed", e[:n], got, err)
			}
		}
	}
}

func TestMessageEncodingIsStable(t *testing.T) {
	t.Parallel()
	var encoded [][]byte
	for _, want := range messages() {
		b := coordinator.AppendMessage(nil, want)
		if got, err := coordinator.DecodeMessage(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v is decoded as %+v, %v, want an equal value", want, got, err)
		}
		if got, err := coordinator.MessageType(b); err != nil || got != want.Type {
			t.Errorf("MessageType = %q, %v, want the type of the message", got, err)
		}
		encoded = append(encoded, b)
	}
	golden(t, "messages.v1.golden", encoded, func(b []byte) (any, error) { return coordinator.DecodeMessage(b) })
}

func TestEventEncodingIsStable(t *testing.T) {
	t.Parallel()
	var encoded [][]byte
	for _, want := range events() {
		b := coordinator.AppendEvent(nil, want)
		if got, err := coordinator.DecodeEvent(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v is decoded as %+v, %v, want an equal value", want, got, err)
		}
		encoded = append(encoded, b)
	}
	golden(t, "events.v1.golden", encoded, func(b []byte) (any, error) { return coordinator.DecodeEvent(b) })
}

func TestStateEncodingIsStable(t *testing.T) {
	t.Parallel()
	var encoded [][]byte
	for _, want := range states(t) {
		b := coordinator.AppendState(nil, want)
		got, err := coordinator.DecodeState(b)
		if err != nil || !got.Equal(want) || got.Shards() != want.Shards() {
			t.Errorf("%+v is decoded as %+v, %v, want an equal value", want, got, err)
		}
		for s := range shard(400) {
			if a, ok := got.Home(s); ok != (a != identity.Node{}) {
				t.Errorf("shard %d has home %v, %t after decoding, want none", s, a, ok)
			} else if b, _ := want.Home(s); a != b {
				t.Errorf("shard %d has home %v after decoding, want %v", s, a, b)
			}
		}
		encoded = append(encoded, b)
	}
	golden(t, "states.v1.golden", encoded, func(b []byte) (any, error) { return coordinator.DecodeState(b) })
}

// Releases without pins can read a history and a state with pins, because they skip the fields of a
// later minor version.
func TestOlderReleasesSkipPins(t *testing.T) {
	t.Parallel()
	for _, e := range []event{pinned("a", 3), released(3)} {
		b := coordinator.AppendEvent(nil, e)
		if !bytes.HasPrefix(b, []byte{0x11, byte(coordinator.HomesDeallocated), 0}) {
			t.Errorf("%v is encoded as %x, want a deallocation of no shards of version 1.1, and further fields", e.Kind, b)
		}
	}
	before := apply(t, append(registered("a"), allocated("a", 1))...)
	with, err := before.Apply(pinned("a", 3))
	if err != nil {
		t.Fatal(err)
	}
	old, b := coordinator.AppendState(nil, before), coordinator.AppendState(nil, with)
	if old[0] != 0x10 || b[0] != 0x11 || !bytes.HasPrefix(b[1:], old[1:]) {
		t.Errorf("the state with a pin is encoded as %x, want version 1.1 and an extension of %x", b, old)
	}
}

// The size of many shards and regions is limited.
func TestEncodingsAreSmall(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 1))
	const regions, shards = 500, coordinator.MaxShards
	var all []event
	for i := range regions {
		n := identity.Node{Name: fmt.Sprintf("orders-%03d.prod.example:7400", i), UID: rnd.Uint64() | 1}
		all = append(all, event{Kind: coordinator.RegionRegistered, Node: n}, event{Kind: coordinator.HomesAllocated, Node: n})
	}
	for s := range shard(shards) {
		e := &all[2*rnd.IntN(regions)+1]
		e.Shards = append(e.Shards, s)
	}
	size := 0
	for _, e := range all {
		size += len(coordinator.AppendEvent(nil, e))
	}
	state := len(coordinator.AppendState(nil, apply(t, all...)))
	if state > 8*shards+40*regions || state > coordinator.MaxBytes {
		t.Errorf("a state of %d regions and %d shards takes %d bytes, want at most %d", regions, shards, state, min(8*shards+40*regions, coordinator.MaxBytes))
	}
	names := len(coordinator.AppendState(nil, apply(t, slices.DeleteFunc(all, func(e event) bool { return e.Kind == coordinator.HomesAllocated })...)))
	if most := names + 3*regions + coordinator.StateBytes(shards); state > most || state < most-4*regions {
		t.Errorf("a state of %d shards takes %d bytes, want at most %d and little less", shards, state, most)
	}
	if size > 8*shards+2*45*regions {
		t.Errorf("the events take %d bytes, want at most %d", size, 8*shards+2*45*regions)
	}
	t.Logf("state: %d bytes, events: %d bytes", state, size)
}

func TestMalformedEncodingsAreRejected(t *testing.T) {
	t.Parallel()
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}
	message := coordinator.AppendMessage(nil, coordinator.Message{Kind: coordinator.GetHomes})
	message = message[: len(message)-2 : len(message)-2] // without shards and homes
	hosted := []byte{0x12, byte(coordinator.Hosted), 0, 0, 0, 0, 0, 0, 0}
	hosted = slices.Clip(hosted)
	twice := coordinator.AppendState(nil, apply(t, append(registered("a", "b"), allocated("a", 1), allocated("b", 2))...))
	for i := range twice {
		if twice[i] == 2 && i == len(twice)-2 {
			twice[i] = 1
		}
	}
	order := []byte{0x10, 0, 2, 0, 1, 'b', 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'a', 7, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for name, b := range map[string][]byte{
		"empty input":     nil,
		"a newer version": {0x20, 1},
		"too much":        append([]byte{0x10}, make([]byte, coordinator.MaxBytes)...),
	} {
		if _, err := coordinator.DecodeMessage(b); !errors.Is(err, coordinator.ErrMalformed) {
			t.Errorf("message, %s: %v, want ErrMalformed", name, err)
		}
		if _, err := coordinator.DecodeEvent(b); !errors.Is(err, coordinator.ErrMalformed) {
			t.Errorf("event, %s: %v, want ErrMalformed", name, err)
		}
		if _, err := coordinator.DecodeState(b); !errors.Is(err, coordinator.ErrMalformed) {
			t.Errorf("state, %s: %v, want ErrMalformed", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"kind 0": {0x10, 0, 0, 0, 0, 0, 0, 0}, "kind 18": {0x10, 18, 0, 0, 0, 0, 0, 0},
		"settings that are too long": {0x11, 1, 0, 0, 0, 0, 0, 0, 1, 1, 200}, "settings cut off": {0x11, 1, 0, 0, 0, 0, 0, 0}, "too many shards": {0x11, 1, 0, 0, 0, 0, 0, 0, 0xa1, 0x8d, 0x06, 0, 0, 0, 0},
		"a huge count of shards": append(message, huge...), "shards that don't fit": append(message, 0x80, 0x08, 0), "a shard beyond the last": append(message, 1, 0xa0, 0x8d, 0x06, 0),
		"an unknown form of load": append(hosted, 2), "load without numbers": append(hosted, 1), "a huge window": append(append(hosted, 1), huge...),
		"too many processors": append(hosted, 1, 0, 0, 0x81, 0x80, 0x04, 0, 0, 0, 0), "too many loads": append(hosted, 1, 0, 0, 0, 0, 0, 0, 0xf5, 0x03, 0),
		"a shard twice in a load": append(hosted, 1, 0, 0, 0, 0, 0, 0, 2, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0), "a load of a shard beyond the last": append(hosted, 1, 0, 0, 0, 0, 0, 0, 1, 0xa0, 0x8d, 0x06, 0, 0, 0, 0),
	} {
		if m, err := coordinator.DecodeMessage(b); !errors.Is(err, coordinator.ErrMalformed) {
			t.Errorf("message, %s: decoded as %+v, %v, want ErrMalformed", name, m, err)
		}
	}
	for name, b := range map[string][]byte{
		"a shard twice": twice, "regions out of order": order, "a prefix longer than the previous name": {0x10, 0, 1, 3, 1, 'a', 7, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "no UID": {0x10, 0, 1, 0, 1, 'a', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"pins out of order": {0x11, 0, 0, 0, 2, 5, 1, 'a', 5, 1, 'b'}, "a pin without a name": {0x11, 0, 0, 0, 1, 5, 0, 0},
		"an invalid name": {0x10, 0, 1, 0, 1, ' ', 7, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "a huge term": append([]byte{0x10}, huge...),
	} {
		if s, err := coordinator.DecodeState(b); !errors.Is(err, coordinator.ErrMalformed) {
			t.Errorf("state, %s: decoded as %+v, %v, want ErrMalformed", name, s, err)
		}
	}
}

// An invalid length is found before memory is allocated for it.
func TestLengthsAreChecked(t *testing.T) { //nolint:paralleltest // it counts allocations
	b := []byte{0x10, byte(coordinator.HomesDeallocated), 0xa0, 0x8d, 0x06}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := coordinator.DecodeEvent(b)
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, coordinator.ErrMalformed) || taken > 100_000 {
		t.Errorf("decoding allocates %d bytes for an event of %d bytes: %v, want ErrMalformed and at most 100 kB", taken, len(b), err)
	}
}

// A short encoded state takes little memory for any shard numbers.
func TestStatesTakeLittleMemory(t *testing.T) { //nolint:paralleltest // it counts allocations
	b := coordinator.AppendState(nil, apply(t, append(registered("a"), allocated("a", coordinator.MaxShards-1))...))
	bounded(t, b, func() error {
		_, err := coordinator.DecodeState(b)
		return err
	})
}

// bounded decodes, and checks that the allocated memory is proportional to the input.
func bounded(t *testing.T, b []byte, decode func() error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := decode()
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 64*uint64(len(b))+512<<10 {
		t.Errorf("decoding %d bytes allocates %d bytes, want at most %d", len(b), taken, 64*uint64(len(b))+512<<10)
	}
	if err != nil && !errors.Is(err, coordinator.ErrMalformed) {
		t.Errorf("got error %v, want ErrMalformed", err)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(coordinator.AppendMessage(nil, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, b, func() error {
			m, err := coordinator.DecodeMessage(b)
			if err != nil {
				return err
			}
			if again, err := coordinator.DecodeMessage(coordinator.AppendMessage(nil, m)); err != nil || !reflect.DeepEqual(again, m) {
				t.Errorf("%+v is decoded again as %+v, %v, want an equal value", m, again, err)
			}
			return nil
		})
	})
}

func FuzzDecodeEvent(f *testing.F) {
	for _, e := range events() {
		f.Add(coordinator.AppendEvent(nil, e))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, b, func() error {
			e, err := coordinator.DecodeEvent(b)
			if err != nil {
				return err
			}
			if again, err := coordinator.DecodeEvent(coordinator.AppendEvent(nil, e)); err != nil || !reflect.DeepEqual(again, e) {
				t.Errorf("%+v is decoded again as %+v, %v, want an equal value", e, again, err)
			}
			return nil
		})
	})
}

func FuzzDecodeState(f *testing.F) {
	f.Add(coordinator.AppendState(nil, coordinator.State{}))
	s, err := coordinator.State{}.Apply(append(registered("a", "ab"), started(1), allocated("ab", 3, 1), pinned("ab", 3))...)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(coordinator.AppendState(nil, s))
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, b, func() error {
			s, err := coordinator.DecodeState(b)
			if err != nil {
				return err
			}
			if again, err := coordinator.DecodeState(coordinator.AppendState(nil, s)); err != nil || !again.Equal(s) {
				t.Errorf("%+v is decoded again as %+v, %v, want an equal value", s, again, err)
			}
			return nil
		})
	})
}
