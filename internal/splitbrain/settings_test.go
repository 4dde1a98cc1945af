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
		if err != nil || got != c.want {
			t.Errorf("defaults of %+v: %+v, %v; want %+v", c.given, got, err, c.want)
		}
		if again, err := got.WithDefaults(); err != nil || again != got && got.RemovalMargin > 0 {
			t.Errorf("defaults of the result: %+v, %v; want %+v", again, err, got)
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
	same := splitbrain.Settings{Strategy: downing.KeepMajority, StableAfter: 20 * time.Second, DownAllWhenUnstable: 15 * time.Second}
	if a, b := (splitbrain.Settings{}).Values(), same.Values(); !slices.Equal(a, b) {
		t.Errorf("the values of the zero value are %v, those of the explicit defaults %v; want equal values", a, b)
	}
}
