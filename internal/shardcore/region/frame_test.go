// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

func packets() []region.Packet {
	long := strings.Repeat("t", coordinator.MaxTypeLength)
	return []region.Packet{
		{Type: "account", Frame: region.Frame{Kind: region.Forward, Shard: 300}, Entity: "42", Body: []byte("deposit")},
		{Type: "a", Frame: region.Frame{Kind: region.Forward, Shard: coordinator.MaxShards - 1, Hop: 1}, Entity: strings.Repeat("ü", region.MaxEntity/2), Body: []byte{}},
		{Type: "account", Frame: region.Frame{Kind: region.NotHome, Shard: 7}},
		{Type: long, Frame: region.Frame{Kind: region.Flush, Instance: 1, ID: 1 << 63}},
		{Type: "account", Frame: region.Frame{Kind: region.Flush, Hop: 1, Instance: 2, ID: 3, Shards: []region.Shard{0, 127, 128, coordinator.MaxShards - 1}}},
		{Type: "account", Frame: region.Frame{Kind: region.Flushed, Instance: 1 << 63, ID: 3, Shards: []region.Shard{5}}},
	}
}

// The golden file was written by version 1 and is never rewritten: each line is one packet.
func TestGoldenPackets(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(filepath.Join("testdata", "packets.v1.golden"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(golden))
	for i, want := range packets() {
		b := region.AppendPacket(nil, want)
		if i >= len(lines) || hex.EncodeToString(b) != lines[i] {
			t.Errorf("packet %d is encoded as\n%x\nwant its line in the golden file", i, b)
		}
		if got, err := region.DecodePacket(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v is decoded as %+v, %v, want an equal packet", want, got, err)
		}
		newer := append([]byte{b[0] + 1}, append(slices.Clone(b[1:]), 1, 2, 3)...)
		if got, err := region.DecodePacket(newer); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("packet %d with fields of a newer version: %+v, %v, want the same packet", i, got, err)
		}
		if got, err := region.DecodePacket(append(slices.Clip(b), 0)); !errors.Is(err, region.ErrMalformed) {
			t.Errorf("packet %d with a trailing byte: %+v, %v, want ErrMalformed", i, got, err)
		}
		for n := range b {
			if got, err := region.DecodePacket(b[:n]); !errors.Is(err, region.ErrMalformed) {
				t.Fatalf("the truncated packet %x: %+v, %v, want ErrMalformed", b[:n], got, err)
			}
		}
	}
}

func TestMalformedPackets(t *testing.T) {
	t.Parallel()
	for subject, b := range map[string][]byte{
		"another version":                {0x20, 2, 1, 'a', 7},
		"kind 0":                         {0x10, 0, 1, 'a', 7},
		"kind 5":                         {0x10, 5, 1, 'a', 7},
		"no type":                        {0x10, 2, 0, 7},
		"shard above the maximum":        {0x10, 2, 1, 'a', 0xa0, 0x8d, 0x06},
		"two hops":                       {0x10, 1, 1, 'a', 7, 2, 0, 0},
		"ID above the maximum":           append([]byte{0x10, 1, 1, 'a', 7, 0, 0x81, 8}, make([]byte, 2000)...),
		"message longer than the packet": {0x10, 1, 1, 'a', 7, 0, 1, 'x', 0x80, 0x80, 0x80, 8},
		"more shards than bytes":         {0x10, 3, 1, 'a', 0, 1, 1, 0xa0, 0x8d, 0x06, 1},
		"packet above the maximum":       append([]byte{0x10, 2, 1, 'a', 7}, make([]byte, region.MaxPacket)...),
	} {
		if p, err := region.DecodePacket(b); !errors.Is(err, region.ErrMalformed) {
			t.Errorf("%s: %+v, %v, want ErrMalformed", subject, p, err)
		}
	}
}

func FuzzDecodePacket(f *testing.F) {
	for _, p := range packets() {
		f.Add(region.AppendPacket(nil, p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		given := bytes.Clone(b)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := region.DecodePacket(b)
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 16*uint64(len(b))+64<<10 {
			t.Errorf("decoding %d bytes allocates %d bytes, want at most %d", len(b), taken, 16*uint64(len(b))+64<<10)
		}
		if !bytes.Equal(b, given) {
			t.Error("DecodePacket has modified its input")
		}
		if err != nil {
			if !errors.Is(err, region.ErrMalformed) {
				t.Errorf("got error %v, want ErrMalformed", err)
			}
			return
		}
		if again, err := region.DecodePacket(region.AppendPacket(nil, p)); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%+v: %+v, %v, want the same packet", p, again, err)
		}
	})
}
