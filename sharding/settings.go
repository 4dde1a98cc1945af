// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// ErrMismatch says that a region, or a proxy, has other settings than the node with the coordinator, which does not let it register:
// nobody is reached through it. The text names the fields.
var ErrMismatch = errors.New("sharding: settings differ from those of the coordinator")

// mismatch is why a region is refused.
type mismatch struct {
	by     identity.Node
	theirs coordinator.Settings
	err    error
}

// settings are those that have to be the same on all nodes.
func (o *Options) settings(proxy bool) coordinator.Settings {
	s := coordinator.Settings{Shards: o.Shards, Routing: o.routing(), Role: o.Role}
	if !proxy {
		s.State, s.Remember = kindOf(o.State), kindOf(o.Remember)
	}
	return s
}

// kindOf returns the kind of stores, empty of those that are the program's own: who knows how they are made on other nodes.
func kindOf(stores any) string {
	switch stores.(type) {
	case nil:
		return "none"
	case JournalConfig:
		return "journal"
	case ReplicatedConfig:
		return "replicated"
	}
	return ""
}

// sampleIDs is how many IDs are tried in each form.
const sampleIDs = 16

// routing is a fingerprint of ShardOf: the shards of some IDs, in forms that IDs have. It must never change.
func (o *Options) routing() uint64 {
	at := site{opts: *o}
	h := uint64(14695981039346656037)
	for i := range sampleIDs {
		for _, form := range []string{"%d", "customer-%03d", "tenant-%d/order-7", "7:%d", "user%d@example.org", "9f1c2b7e-0000-4000-8000-%012d", "帳戶 %d", "|%x|"} {
			n, err := at.shardOf(fmt.Sprintf(form, i*i*37))
			if err != nil { // IDs in this form are none
				n = coordinator.MaxShards
			}
			h = (h ^ uint64(n)) * 1099511628211
		}
	}
	return h
}

// differs returns the error about settings of the coordinator's node that are others.
func (s *site) differs(by identity.Node, theirs coordinator.Settings) error {
	ours := s.cfg.Region.Settings
	var all []string
	for _, field := range ours.Differences(theirs) {
		var here, there any
		switch field {
		case "Shards":
			here, there = ours.Shards, theirs.Shards
		case "Role":
			here, there = fmt.Sprintf("%q", ours.Role), fmt.Sprintf("%q", theirs.Role)
		case "State":
			here, there = ours.State, theirs.State
		case "Remember":
			here, there = ours.Remember, theirs.Remember
		default:
			all = append(all, "Options."+field+" gives IDs other shards here than there")
			continue
		}
		all = append(all, fmt.Sprintf("Options.%s is %v here and %v there", field, here, there))
	}
	return fmt.Errorf("%w of type %q on %v: %s", ErrMismatch, s.name, by, strings.Join(all, ", "))
}

// tellRefused takes note whether the coordinator refuses the region.
func (s *site) tellRefused() {
	by, theirs := s.machine.Refused()
	last := s.mismatch.Load()
	switch {
	case theirs == nil && last == nil:
	case theirs == nil:
		s.mismatch.Store(nil)
		s.log.InfoContext(s.base, "the coordinator does not refuse the region any more")
	case last == nil || last.by != by || last.theirs != *theirs:
		m := &mismatch{by, *theirs, s.differs(by, *theirs)}
		s.mismatch.Store(m)
		s.log.ErrorContext(s.base, "the coordinator refuses the region, nobody is reached through it", slog.Any("error", m.err))
		if last == nil && !s.told {
			s.told = true
			close(s.refusal)
		}
	}
}

// mismatched returns why the coordinator refuses the region, nil if it does not.
func (s *site) mismatched() error {
	if m := s.mismatch.Load(); m != nil {
		return m.err
	}
	return nil
}
