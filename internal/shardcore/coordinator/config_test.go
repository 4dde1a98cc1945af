// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

func TestSettingsDifferences(t *testing.T) {
	t.Parallel()
	all := coordinator.Settings{Shards: 200, Routing: 7, Role: "bank", State: "journal", Remember: "none", Wake: "none"}
	proxy := all
	proxy.State, proxy.Remember = "", ""
	changed := func(f func(*coordinator.Settings)) coordinator.Settings {
		s := all
		f(&s)
		return s
	}
	for want, s := range map[string]coordinator.Settings{
		"":            all,
		" ":           {},
		"  ":          proxy,
		"Shards":      changed(func(s *coordinator.Settings) { s.Shards, s.Routing = 100, 8 }),
		"ShardOf":     changed(func(s *coordinator.Settings) { s.Routing = 8 }),
		"Role":        changed(func(s *coordinator.Settings) { s.Role = "" }),
		"State":       changed(func(s *coordinator.Settings) { s.State = "replicated" }),
		"Remember":    changed(func(s *coordinator.Settings) { s.Remember = "journal" }),
		"Wake":        changed(func(s *coordinator.Settings) { s.Wake = "journal" }),
		"Shards Role": changed(func(s *coordinator.Settings) { s.Shards, s.Role = 1, "x" }),
	} {
		if got := strings.Join(all.Differences(s), " "); got != strings.TrimSpace(want) {
			t.Errorf("%+v: Differences = %q, want %q", s, got, want)
		}
		if got := strings.Join(s.Differences(all), " "); got != strings.TrimSpace(want) {
			t.Errorf("%+v as the argument: Differences = %q, want %q", s, got, want)
		}
	}
}

// The refusal of a region with different settings contains the settings of the coordinator. The
// region may register again.
func TestRegionWithOtherSettingsIsRefused(t *testing.T) {
	t.Parallel()
	ours := coordinator.Settings{Shards: 200, Routing: 7}
	d := active(t, coordinator.Config{Shards: 200, Settings: ours}, "a b c d")
	with := func(s coordinator.Settings) coordinator.Message {
		return coordinator.Message{Kind: coordinator.Register, Settings: s}
	}
	d.receive("a", with(ours))
	d.receive("b", with(coordinator.Settings{Shards: 100, Routing: 7}))
	d.receive("c", coordinator.Message{Kind: coordinator.RegisterProxy, Settings: coordinator.Settings{Shards: 200, Routing: 8}})
	d.receive("d", with(coordinator.Settings{})) // sends no settings
	d.want("two accepted and two refused registrations", "a register ack, b refused, c refused, d register ack")
	d.stored("only accepted registrations", "region registered a; region registered d")
	var refused []string
	for _, n := range d.notes {
		if n.Kind == coordinator.RegionRefused {
			refused = append(refused, n.Node.Name+" "+strings.Join(n.Fields, " "))
		}
	}
	if want := []string{"b Shards", "c ShardOf"}; !slices.Equal(refused, want) || d.m.Refused() != 2 {
		t.Errorf("refused: %q, Refused() = %d, want b with Shards, c with ShardOf, and 2", refused, d.m.Refused())
	}
	d.receive("b", coordinator.Message{Kind: coordinator.GetHomes, Shards: []shard{1}})
	d.want("request for homes of a refused region", "b register again")
	d.receive("b", with(ours))
	d.stored("registration with equal settings", "region registered b")
	if d.m.Refused() != 1 {
		t.Errorf("Refused() = %d after one region was accepted, want 1", d.m.Refused())
	}
	if d.members("a b d"); d.m.Refused() != 0 {
		t.Errorf("Refused() = %d after the nodes were removed, want 0", d.m.Refused())
	}
	_, err := coordinator.New(coordinator.Config{Self: node("a"), Type: "account", Settings: coordinator.Settings{Role: strings.Repeat("x", 129)}})
	if !errors.Is(err, coordinator.ErrInvalid) || !strings.Contains(err.Error(), "Config.Settings") {
		t.Errorf("settings with a text above the limit: %v, want ErrInvalid", err)
	}
}
