// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// TestDefaults checks the defaults in a large cluster.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ given, want splitbrain.Settings }{
		{splitbrain.Settings{}, splitbrain.Settings{Strategy: downing.KeepMajority, StableAfter: 20 * time.Second, DownAllWhenUnstable: 15 * time.Second, RemovalMargin: 20 * time.Second}},
		{
			splitbrain.Settings{StableAfter: 4 * time.Second, RemovalMargin: -1},
			splitbrain.Settings{Strategy: downing.KeepMajority, StableAfter: 4 * time.Second, DownAllWhenUnstable: 4 * time.Second},
		},
		{
			splitbrain.Settings{Strategy: downing.DownAll, DownAllWhenUnstable: -9, RemovalMargin: time.Second},
			splitbrain.Settings{Strategy: downing.DownAll, StableAfter: 20 * time.Second, DownAllWhenUnstable: -1, RemovalMargin: time.Second},
		},
		{
			splitbrain.Settings{Strategy: downing.LeaseMajority, StableAfter: time.Second},
			splitbrain.Settings{
				Strategy: downing.LeaseMajority, StableAfter: time.Second, DownAllWhenUnstable: 4 * time.Second, RemovalMargin: time.Second,
				MinorityDelay: 2 * time.Second, ReleaseAfter: 40 * time.Second,
			},
		},
		{splitbrain.Settings{Strategy: downing.Off}, splitbrain.Settings{Strategy: downing.Off}},
		{splitbrain.Settings(downing.Auto(time.Second)), splitbrain.Settings{Strategy: downing.Auto(1).Strategy, StableAfter: time.Second, DownAllWhenUnstable: -1}},
	} {
		got, err := c.given.WithDefaults()
		if err != nil || got.For(100) != c.want {
			t.Errorf("defaults of %+v: %+v, %v; want %+v", c.given, got.For(100), err, c.want)
		}
		if again, err := got.WithDefaults(); err != nil || again != got {
			t.Errorf("defaults of the result: %+v, %v; want %+v", again, err, got)
		}
	}
}

// TestDefaultsBySize checks that the default times grow with the cluster, and that settings with a
// value do not.
func TestDefaultsBySize(t *testing.T) {
	t.Parallel()
	s, err := splitbrain.Settings{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]time.Duration{
		0: 5 * time.Second, 1: 5 * time.Second, 3: 5 * time.Second, 4: 6 * time.Second, 5: 7 * time.Second, 10: 10 * time.Second, 20: 13 * time.Second,
		35: 15 * time.Second, 50: 17 * time.Second, 100: 20 * time.Second, 101: 20 * time.Second, 2000: 20 * time.Second,
	} {
		got := s.For(size)
		if got.StableAfter != want || got.RemovalMargin != want || got.DownAllWhenUnstable != max(4*time.Second, want*3/4) {
			t.Errorf("%d members: %+v, want %v of stability and margin", size, got, want)
		}
	}
	for size := range 200 {
		if a, b := s.For(size).StableAfter, s.For(size+1).StableAfter; a > b {
			t.Errorf("StableAfter decreases from %v to %v at %d members", a, b, size)
		}
	}
	s.StableAfter = 9 * time.Second
	if s.For(3) != s.For(100) || s.For(3).RemovalMargin != 9*time.Second {
		t.Errorf("an explicit StableAfter leads to %+v with 3 members, and to %+v with 100", s.For(3), s.For(100))
	}
	s.StableAfter, s.RemovalMargin = 0, 6*time.Second
	if got := s.For(10); got.RemovalMargin != 6*time.Second || got.StableAfter != 10*time.Second {
		t.Errorf("an explicit RemovalMargin leads to %+v with 10 members", got)
	}
}

// TestResolverBySize checks that a resolver decides after the time for the number of members.
func TestResolverBySize(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]time.Duration{3: 5 * time.Second, 10: 10 * time.Second} {
		r, err := splitbrain.New(node("a"), splitbrain.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		v := splitbrain.View{Leader: true}
		for i := range size {
			v.Members = append(v.Members, identity.Member{Node: node(string(rune('a' + i))), Status: identity.Up, UpNumber: int32(i + 1)})
		}
		r.Step(0, v)
		v.Unreachable = []identity.Node{node("b")}
		r.Step(time.Minute, v)
		at := time.Minute
		for len(r.Tick(at).Down) == 0 {
			at += time.Second
		}
		if at -= time.Minute; at != want {
			t.Errorf("%d members: the decision takes %v, want %v", size, at, want)
		}
	}
}

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	for field, s := range map[string]splitbrain.Settings{
		"Strategy":                            {Strategy: "best"},
		"QuorumSize":                          {Strategy: downing.StaticQuorum},
		"QuorumSize is not":                   {Strategy: downing.KeepMajority, QuorumSize: 2},
		"StableAfter":                         {StableAfter: -1},
		"MinorityDelay":                       {Strategy: downing.LeaseMajority, MinorityDelay: -1},
		"ReleaseAfter":                        {Strategy: downing.LeaseMajority, ReleaseAfter: -1},
		"MinorityDelay is not":                {MinorityDelay: 1},
		"ReleaseAfter is not":                 {ReleaseAfter: 1},
		"LeaseName":                           {LeaseName: "x"},
		"KeepLoneOldest":                      {KeepLoneOldest: true},
		"Role":                                {Strategy: downing.DownAll, Role: "x"},
		"StableAfter is not":                  {Strategy: downing.Off, StableAfter: 1},
		"DownAllWhenUnstable":                 {Strategy: downing.Off, DownAllWhenUnstable: 1},
		"StableAfter is 0s":                   splitbrain.Settings(downing.Auto(0)),
		"LeaseName is not used by \"down-all": {Strategy: downing.DownAll, LeaseName: "x", Role: "y"},
	} {
		_, err := s.WithDefaults()
		if field = strings.TrimSuffix(field, " by \"down-all"); !errors.Is(err, splitbrain.ErrInvalid) || !strings.Contains(err.Error(), "Settings."+field) {
			t.Errorf("%+v: the error %v does not name %s", s, err, field)
		}
		if _, err := splitbrain.New(node("a"), s); !errors.Is(err, splitbrain.ErrInvalid) {
			t.Errorf("New with %+v: %v, want ErrInvalid", s, err)
		}
		if s.Values() != nil {
			t.Errorf("Values of the invalid settings %+v succeeded", s)
		}
	}
	if _, err := splitbrain.New(identity.Node{Name: "a"}, splitbrain.Settings{}); !errors.Is(err, splitbrain.ErrInvalid) {
		t.Errorf("New without a node: %v, want ErrInvalid", err)
	}
}

// Settings with different decisions have different values. Other settings have the same values.
func TestValues(t *testing.T) {
	t.Parallel()
	different := []splitbrain.Settings{
		{},
		{StableAfter: time.Second},
		{StableAfter: 20 * time.Second},
		{DownAllWhenUnstable: -1},
		{DownAllWhenUnstable: 1},
		{RemovalMargin: -1},
		{Role: "x"},
		{Strategy: downing.KeepOldest},
		{Strategy: downing.KeepOldest, KeepLoneOldest: true},
		{Strategy: downing.StaticQuorum, QuorumSize: 1},
		{Strategy: downing.StaticQuorum, QuorumSize: 2},
		{Strategy: downing.LeaseMajority},
		{Strategy: downing.LeaseMajority, LeaseName: "x"},
		{Strategy: downing.LeaseMajority, MinorityDelay: 1},
		{Strategy: downing.LeaseMajority, ReleaseAfter: 1},
		{Strategy: downing.DownAll},
		{Strategy: downing.Off},
		splitbrain.Settings(downing.Auto(1)), splitbrain.Settings(downing.Auto(2)),
	}
	for i, a := range different {
		values := a.Values()
		if !slices.IsSortedFunc(values, func(a, b membership.Setting) int { return strings.Compare(a.Key, b.Key) }) || values[0].Key != "downing" {
			t.Errorf("values of %+v: %v, want them sorted by key with downing first", a, values)
		}
		for _, b := range different[i+1:] {
			if slices.Equal(values, b.Values()) {
				t.Errorf("%+v and %+v have the same values %v", a, b, values)
			}
		}
	}
	for _, same := range [][2]splitbrain.Settings{
		{{}, {Strategy: downing.KeepMajority}},
		{{StableAfter: 20 * time.Second}, {StableAfter: 20 * time.Second, DownAllWhenUnstable: 15 * time.Second, RemovalMargin: 20 * time.Second}},
	} {
		if a, b := same[0].Values(), same[1].Values(); !slices.Equal(a, b) {
			t.Errorf("the values of %+v are %v, those of %+v are %v; want equal values", same[0], a, same[1], b)
		}
	}
}
