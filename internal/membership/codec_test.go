// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

var golden = flag.Bool("golden", false, "write the golden files that do not exist")

func TestContentRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		if len(h.all) == 0 {
			return
		}
		g, known := rapid.SampledFrom(h.all).Draw(t, "gossip"), rapid.SampledFrom(append(h.all, membership.Gossip{})).Draw(t, "known")
		got, err := membership.StateOf(g).Gossip(known)
		if err != nil || !reflect.DeepEqual(got, g) {
			t.Fatalf("DecodeContent: %v\ngot  %s\nwant %s", err, describe(got), describe(g))
		}
		check(t, got)
	})
}

func TestDecodeSharesEqualParts(t *testing.T) {
	t.Parallel()
	g, self := many(rand.New(rand.NewPCG(1, 1)), 50)
	g = apply(t, g, self, membership.Change{Observed: []membership.Observation{{g.Members()[3].Node, unreachable}}})
	s := membership.StateOf(g)
	same, err := s.Gossip(g)
	if err != nil || &same.Members()[0] != &g.Members()[0] || &same.Reachability().Observers[0] != &g.Reachability().Observers[0] || &same.Clock()[0] != &g.Clock()[0] {
		t.Errorf("DecodeContent of the known gossip does not share all parts: %v", err)
	}
	later := apply(t, g, self, membership.Change{Put: []*identity.Member{{Node: g.Members()[7].Node, Status: leaving, UpNumber: 8, Roles: []string{"backend"}}}})
	next, err := membership.StateOf(later).Gossip(g)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range next.Members() {
		if (m == g.Members()[i]) != (i != 7) {
			t.Errorf("member %d is shared: %t, want %t", i, m == g.Members()[i], i != 7)
		}
	}
	if next.Members()[7].Status != leaving {
		t.Errorf("the changed member was decoded as %v, want leaving", next.Members()[7])
	}
}

// A state of 1,000 members, some of them unreachable or removed, fits into 40 KiB.
func TestSizeOfLargeState(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	g, _ := many(r, 1000)
	for i := range 200 {
		by, bad := g.Members()[r.IntN(1000)].Node, g.Members()[i%50].Node
		g = apply(t, g, by, membership.Change{Observed: []membership.Observation{{bad, unreachable}}})
	}
	for _, m := range g.Members()[:900] {
		g = g.Saw(m.Node)
	}
	size := len(membership.AppendMessage(nil, membership.StateOf(g)))
	t.Logf("%d bytes", size)
	if size > 40<<10 {
		t.Errorf("the state has %d bytes, want at most 40 KiB", size)
	}
}

func messages(tb testing.TB) map[string]membership.Message {
	tb.Helper()
	g := cluster(tb, member("a", up), member("b", leaving), member("node-1.example:7400", joining), member("node-2.example:7400", down))
	with := *g.Member(node("b"))
	with.Roles, with.UpNumber, with.Version = []string{"api", "backend"}, 7, version(tb, "1.2.3")
	g = apply(tb, g, node("a"), membership.Change{Put: []*identity.Member{&with}})
	g = apply(tb, g, node("b"), membership.Change{Observed: []membership.Observation{{node("a"), unreachable}, {node("node-2.example:7400"), terminated}}})
	g = apply(tb, g, node("a"), membership.Change{Remove: []identity.Node{node("node-1.example:7400")}, At: 1700000000})
	state := membership.StateOf(g)
	settings := []membership.Setting{{Key: "downing", Value: "keep-majority"}, {Key: "shards", Value: "1000", Optional: true}}
	digest := membership.Digest{1, 2, 3}
	return map[string]membership.Message{
		"init-join":         membership.InitJoin{Settings: settings},
		"init-join-ack":     membership.InitJoinAck{Compatible: true, Settings: settings},
		"init-join-nack":    membership.InitJoinNack{},
		"join":              membership.Join{Roles: []string{"api"}, Version: version(tb, "1.2.3-M1")},
		"welcome":           membership.Welcome{State: state},
		"name-in-use":       membership.NameInUse{Holder: node("a")},
		"ping":              membership.Ping{Node: identity.Node{Name: "a.b:1", UID: 0x0102030405060708}},
		"pong":              membership.Pong{},
		"digests":           membership.Digests{Version: digest, Seen: g.SeenDigest()},
		"versions":          membership.Versions{Clock: g.Clock(), Seen: digest},
		"seen":              membership.SeenOf(g),
		"state":             state,
		"heartbeat":         membership.Heartbeat{Nr: 300, At: time.Minute},
		"heartbeat-reply":   membership.HeartbeatReply{Nr: 300, At: time.Minute},
		"echo":              membership.Echo{Nr: 5},
		"exiting-confirmed": membership.ExitingConfirmed{},
		"quarantined":       membership.Quarantined{},
		"stranger":          membership.Stranger{},
		"doubt":             membership.LivenessQuery{Nr: 300, Version: digest},
		"vouch":             membership.LivenessReply{Nr: 300, Absence: membership.Away},
	}
}

func version(tb testing.TB, s string) identity.Version {
	tb.Helper()
	v, err := identity.ParseVersion(s)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// The encoding never changes: golden files are added, never rewritten.
func TestGoldenMessages(t *testing.T) {
	t.Parallel()
	all := messages(t)
	if len(all) != int(membership.Kinds)-1 {
		t.Errorf("the test has %d messages for %d kinds", len(all), membership.Kinds-1)
	}
	for name, m := range all {
		if membership.KindOf(m).String() != name {
			t.Errorf("the message with the name %s has the kind %v", name, membership.KindOf(m))
		}
		encoded := hex.EncodeToString(membership.AppendMessage(nil, m)) + "\n"
		path := filepath.Join("testdata", "v1", name+".hex")
		want, err := os.ReadFile(path)
		if *golden && os.IsNotExist(err) {
			want, err = []byte(encoded), os.WriteFile(path, []byte(encoded), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if encoded != string(want) {
			t.Errorf("%s was encoded as %s, want %s", name, encoded, want)
		}
		stored, err := hex.DecodeString(strings.TrimSpace(string(want)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := membership.DecodeMessage(stored); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, m)
		}
	}
}

func TestMessageVersions(t *testing.T) {
	t.Parallel()
	for name, m := range messages(t) {
		b := membership.AppendMessage(nil, m)
		newer := append(bytes.Clone(b), "something new"...)
		newer[0]++
		if got, err := membership.DecodeMessage(newer); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s of a newer minor version: %v, %v, want %v", name, got, err, m)
		}
		if _, err := membership.DecodeMessage(append(bytes.Clone(b), 0)); !errors.Is(err, membership.ErrMalformed) {
			t.Errorf("%s with one byte too many: %v, want ErrMalformed", name, err)
		}
		b[0] += 1 << 4
		if _, err := membership.DecodeMessage(b); !errors.Is(err, membership.ErrMalformed) {
			t.Errorf("%s of another major version: %v, want ErrMalformed", name, err)
		}
	}
}

func TestTruncatedMessages(t *testing.T) {
	t.Parallel()
	for name, m := range messages(t) {
		b := membership.AppendMessage(nil, m)
		for i := range len(b) {
			got, err := membership.DecodeMessage(b[:i:i])
			if !errors.Is(err, membership.ErrMalformed) {
				t.Errorf("DecodeMessage of %s, %d of %d bytes: %v, %v, want ErrMalformed", name, i, len(b), got, err)
			}
		}
	}
	content := membership.StateOf(cluster(t, member("a", up), member("b", up))).Content
	for i := range len(content) {
		if _, err := membership.DecodeContent(content[:i:i], membership.Gossip{}); !errors.Is(err, membership.ErrMalformed) {
			t.Errorf("DecodeContent of %d of %d bytes: %v, want ErrMalformed", i, len(content), err)
		}
	}
}

func TestExtensions(t *testing.T) {
	t.Parallel()
	// The content of a gossip ends with its extensions. This version defines no extension.
	extended := func(g membership.Gossip, extensions ...string) membership.Gossip {
		content := g.AppendContent(nil)
		content[len(content)-1] = byte(len(extensions))
		for _, e := range extensions {
			number, data, _ := strings.Cut(e, "=")
			content = append(content, number[0]-'0', byte(len(data)))
			content = append(content, data...)
		}
		got, err := membership.DecodeContent(content, g)
		if err != nil || !bytes.Equal(got.AppendContent(nil), content) {
			t.Fatalf("the extensions %v are encoded differently: %v", got.Extensions(), err)
		}
		return got
	}
	base := cluster(t, member("a", up), member("b", up))
	x := apply(t, extended(base, "1=old", "2=x"), node("a"), membership.Change{Put: []*identity.Member{member("c", joining)}})
	y := apply(t, extended(base, "1=pld", "3=y"), node("b"), membership.Change{Put: []*identity.Member{member("d", joining)}})
	want := []membership.Extension{{1, []byte("pld")}, {2, []byte("x")}, {3, []byte("y")}}
	m, _ := x.Merge(y)
	n, _ := y.Merge(x)
	if !reflect.DeepEqual(m.Extensions(), want) || !reflect.DeepEqual(n.Extensions(), want) {
		t.Errorf("the merged extensions are %v and %v, want %v", m.Extensions(), n.Extensions(), want)
	}
}

func TestMalformedContent(t *testing.T) {
	t.Parallel()
	// One profile without version and roles, then members.
	one := "0100" + "00"
	a := "000001" + "61" + "0100000000000000"
	b := "000001" + "62" + "0100000000000000"
	for name, text := range map[string]string{
		"a name with a space":                 one + "01" + "000001" + "20" + "0100000000000000" + "030000" + "00000000",
		"no name":                             one + "01" + "000000" + "0100000000000000" + "030000" + "00000000",
		"no UID":                              one + "01" + "000001" + "61" + "0000000000000000" + "030000" + "00000000",
		"a truncated name":                    one + "01" + "010000" + "0100000000000000" + "030000" + "00000000",
		"members not in order":                one + "02" + b + "030000" + a + "030000" + "00000000",
		"a member twice":                      one + "02" + a + "030000" + "010000" + "0100000000000000" + "030000" + "00000000",
		"no status":                           one + "01" + a + "000000" + "00000000",
		"removed":                             one + "01" + a + "070000" + "00000000",
		"an unknown profile":                  one + "01" + a + "030001" + "00000000",
		"a tick of an unknown member":         one + "01" + a + "030000" + "010101" + "000000",
		"a tick of 0":                         one + "01" + a + "030000" + "010000" + "000000",
		"two ticks of one member":             one + "02" + a + "030000" + b + "030000" + "0200010001" + "000000",
		"an observation of an unknown member": one + "01" + a + "030000" + "00" + "010000" + "010502" + "0000",
		"no reach":                            one + "01" + a + "030000" + "00" + "01000101" + "000901" + "0000",
		"a member with a tombstone":           one + "01" + a + "030000" + "0000" + "01" + a + "0000" + "00",
		"a tombstone without time":            one + "00" + "0000" + "01" + a,
		"extensions not in order":             one + "00" + "0000" + "00" + "02" + "0200" + "0100",
		"too many members":                    one + "ffff7f",
		"an invalid version":                  "0105" + "312e782e32" + "00" + "00" + "00000000",
		"roles not in order":                  "0100" + "02" + "0162" + "0161" + "00" + "00000000",
		"a reserved role":                     "0100" + "01" + "0464632d78" + "00" + "00000000",
		"an unterminated number":              "ffffffffffffffffffffff",
		"an up number out of bounds":          one + "01" + a + "03" + "ffffffff0f" + "00" + "00000000",
		"trailing bytes":                      one + "00" + "00000000" + "00",
		"a truncated extension":               one + "00" + "000000" + "01" + "0105" + "00",
		"a truncated profile":                 "0101",
	} {
		content, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(name, err)
		}
		if g, err := membership.DecodeContent(content, membership.Gossip{}); !errors.Is(err, membership.ErrMalformed) {
			t.Errorf("%s: decoded to %s, %v, want ErrMalformed", name, describe(g), err)
		}
	}
	good, err := hex.DecodeString(one + "02" + a + "030000" + b + "030000" + "0200010101" + "00" + "00" + "00")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := membership.DecodeContent(good, membership.Gossip{}); err != nil {
		t.Errorf("DecodeContent of a valid state: %v", err)
	}
}

func TestSeenSetTooLarge(t *testing.T) {
	t.Parallel()
	s := membership.StateOf(cluster(t, member("a", up)))
	b := membership.AppendMessage(nil, s)
	b[2+16+1] = 3 // the bitmap: version, kind, digest, one byte
	m, err := membership.DecodeMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	state, ok := m.(membership.State)
	if _, err := state.Gossip(membership.Gossip{}); !ok || !errors.Is(err, membership.ErrMalformed) {
		t.Errorf("a seen set of two for one member was accepted: %v, %v", m, err)
	}
}

func TestLengthsCheckedBeforeAllocation(t *testing.T) { //nolint:paralleltest // it measures allocations
	for name, text := range map[string]string{
		"members":    "010000" + "904e",
		"tombstones": "010000" + "00" + "0000" + "a08d06",
	} {
		content, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(name, err)
		}
		limited(t, len(content), func() { _, err = membership.DecodeContent(content, membership.Gossip{}) })
		if !errors.Is(err, membership.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
}
