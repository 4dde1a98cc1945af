// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// TestScripts runs the scripts in testdata/scripts. Each file is one world; script.do documents the
// commands. Run go test -rewrite to update the expected output, and review the difference.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		t.Helper()
		t.Parallel()
		s := &script{w: newWorld(t, 1), isolated: map[string]bool{}, oneWay: map[[2]string]bool{}, read: map[*host][2]int{}}
		s.w.cut = func(from, to string) bool {
			return s.isolated[from] != s.isolated[to] || s.oneWay[[2]string{from, to}]
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			s.w.tb = t
			return s.do(t, d)
		})
	})
}

type script struct {
	w        *world
	isolated map[string]bool
	oneWay   map[[2]string]bool
	read     map[*host][2]int // number of events and lives that were shown
}

func (s *script) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var names []string
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 {
			names = append(names, arg.Key)
		}
	}
	switch d.Cmd {
	case "settings": // name=value ...
		for _, arg := range d.CmdArgs {
			s.setting(t, arg.Key, arg.Vals)
		}
	case "start": // names ... seeds=(...) or to=... [roles=(...)] [check=(key=value, ...)] [promised]
		for _, name := range names {
			s.start(d, name)
		}
	case "run": // duration
		s.w.run(duration(t, names[0]))
	case "wait": // most, names ...: until exactly these nodes are Up
		var hosts []*host
		for _, name := range names[1:] {
			hosts = append(hosts, s.host(t, name))
		}
		s.w.up(duration(t, names[0]), hosts...)
	case "kill":
		s.each(t, names, func(h *host) { h.kill() })
	case "pause":
		s.each(t, names, func(h *host) { h.pause() })
	case "unpause":
		s.each(t, names, func(h *host) { h.unpause() })
	case "offline":
		s.each(t, names, func(h *host) { h.offline = true })
	case "online":
		s.each(t, names, func(h *host) { h.offline = false })
	case "broker": // off or on
		s.w.broker = names[0] == "off"
	case "isolate":
		for _, name := range names {
			s.isolated[name] = true
		}
	case "heal":
		clear(s.isolated)
		clear(s.oneWay)
	case "block": // from=... to=...: no message gets from one node to the other
		s.oneWay[[2]string{arg(d, "from"), arg(d, "to")}] = true
	case "command": // name, command, argument
		s.note(t, names)
	case "members", "events", "life", "log":
		return s.show(t, d.Cmd, names)
	default:
		t.Fatalf("%s: unknown command", d.Pos)
	}
	return "ok"
}

func (s *script) show(t *testing.T, subject string, names []string) string {
	t.Helper()
	var out strings.Builder
	s.each(t, names, func(h *host) {
		out.WriteString(h.node.Name + ":")
		seen := s.read[h]
		switch subject {
		case "members":
			out.WriteString(s.members(h))
		case "log":
			for _, l := range h.lines {
				if l.Level >= membership.Warn {
					out.WriteString("\n  " + l.Message)
				}
			}
			h.lines = nil
		case "events":
			for _, e := range h.events[seen[0]:] {
				if text := s.event(e); text != "" {
					out.WriteString("\n  " + text)
				}
			}
			seen[0] = len(h.events)
		case "life":
			for _, l := range h.lives[seen[1]:] {
				out.WriteString(" " + l.Kind.String())
				if l.Reason != 0 {
					out.WriteString(" (" + l.Reason.String() + ")")
				}
			}
			seen[1] = len(h.lives)
		}
		s.read[h] = seen
		out.WriteString("\n")
	})
	return out.String()
}

// name labels the incarnations of a name.
func (s *script) name(n identity.Node) string {
	if n.IsZero() {
		return "nobody"
	}
	nth := 0
	for _, h := range s.w.hosts {
		if h.node.Name == n.Name {
			nth++
		}
		if h.node == n {
			break
		}
	}
	return n.Name + strings.Repeat("'", nth-1)
}

func (s *script) members(h *host) string {
	if !h.m.Member() {
		return " no member"
	}
	out := ""
	view := h.m.View()
	for _, m := range view.Members {
		out += " " + s.name(m.Node) + " " + m.Status.String()
		if slices.Contains(view.Unreachable, m.Node) {
			out += " unreachable"
		}
		out += ","
	}
	return out + " leader " + s.name(view.LeaderNode)
}

func (s *script) event(e membership.Event) string {
	switch e.Kind {
	case membership.SeenChanged, membership.ReachabilityChanged, membership.TombstonesChanged:
		return ""
	case membership.LeaderChanged:
		return "leader " + s.name(e.Node)
	case membership.RoleLeaderChanged:
		return "leader of " + e.Role + " " + s.name(e.Node)
	case membership.MemberRemoved:
		return s.name(e.Member.Node) + " removed, was " + e.Previous.String()
	case membership.ShuttingDown:
		return "shutting down"
	default:
		return s.name(e.Member.Node) + " " + e.Kind.String()
	}
}

func (s *script) start(d *datadriven.TestData, name string) {
	h := s.w.start(name, func(cfg *membership.Config) {
		for _, a := range d.CmdArgs {
			switch a.Key {
			case "roles":
				cfg.Roles = a.Vals
			case "check":
				for _, v := range a.Vals {
					key, value, _ := strings.Cut(v, ":")
					cfg.Check = append(cfg.Check, membership.Setting{Key: strings.TrimSuffix(key, "?"), Value: value, Optional: strings.HasSuffix(key, "?")})
				}
			case "promised":
				cfg.VersionPending = true
			}
		}
	})
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "seeds":
			h.do(membership.JoinSeeds{Seeds: a.Vals})
		case "to":
			h.do(membership.JoinNode{Name: a.Vals[0]})
		}
	}
}

func (s *script) note(t *testing.T, args []string) {
	t.Helper()
	h := s.host(t, args[0])
	target := identity.Node{}
	if len(args) > 2 {
		target.Name = args[2]
	}
	switch args[1] {
	case "leave":
		h.do(membership.Leave{Node: target})
	case "down":
		h.do(membership.DownNode{Node: target})
	case "quarantine":
		h.do(membership.Quarantine{Node: s.host(t, args[2]).node})
	case "prepare":
		h.do(membership.PrepareForShutdown{})
	case "version":
		h.do(membership.SetVersion{Version: version(t, args[2])})
	case "join":
		h.do(membership.JoinNode{Name: args[2]})
	case "link-lost":
		h.do(membership.LinkLost{})
	case "link-restored":
		h.do(membership.LinkRestored{})
	case "shutdown":
		h.do(membership.Shutdown{})
	default:
		t.Fatalf("unknown command %s", args[1])
	}
}

func (s *script) setting(t *testing.T, key string, vals []string) {
	t.Helper()
	set := &s.w.settings
	switch key {
	case "min-members":
		set.MinMembers, _ = strconv.Atoi(vals[0])
	case "min-members-of":
		n, _ := strconv.Atoi(vals[1])
		set.MinMembersOfRole = map[string]int{vals[0]: n}
	case "stop-joining-after":
		set.StopJoiningAfter = duration(t, vals[0])
	case "ignore-incompatible":
		set.IgnoreIncompatible = true
	case "loss":
		s.w.loss, _ = strconv.ParseFloat(vals[0], 64)
	case "prune-tombstones-after":
		set.PruneTombstonesAfter = duration(t, vals[0])
	default:
		t.Fatalf("unknown setting %s", key)
	}
}

// host returns the last process with a name, or the first for name^.
func (s *script) host(t *testing.T, name string) *host {
	t.Helper()
	for i := range s.w.hosts {
		if first, ok := strings.CutSuffix(name, "^"); ok && s.w.hosts[i].node.Name == first {
			return s.w.hosts[i]
		}
		if last := s.w.hosts[len(s.w.hosts)-1-i]; last.node.Name == name {
			return last
		}
	}
	t.Fatalf("unknown host %s", name)
	return nil
}

func (s *script) each(t *testing.T, names []string, f func(*host)) {
	t.Helper()
	for _, name := range names {
		f(s.host(t, name))
	}
}

func arg(d *datadriven.TestData, key string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return ""
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(fmt.Errorf("duration: %w", err))
	}
	return d
}
