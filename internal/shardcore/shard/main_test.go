// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/sharding/passivation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// driver steps a shard and compares its effects, as text, with the expected ones.
type driver struct {
	t   *testing.T
	m   *shard.Machine
	now time.Duration
}

func drive(t *testing.T, cfg shard.Config) *driver {
	t.Helper()
	m, err := shard.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, m: m}
	first := ""
	switch {
	case cfg.Lease:
		first = "acquire"
	case cfg.Remember:
		first = "load"
	}
	d.want(m.Open(0), first)
	return d
}

// text writes effects as "+a1" (start), "a1:7" (pass), "-a1" (stop), "!a1" (kill), "x7 reason" and
// "store1 +[a] -[b]".
func text(out shard.Effects) string {
	var s []string
	for _, r := range out.Refused {
		s = append(s, fmt.Sprintf("x%d %v", r.Token, r.Reason))
	}
	if out.Acquire {
		s = append(s, "acquire")
	}
	if out.Release {
		s = append(s, "release")
	}
	if out.Load {
		s = append(s, "load")
	}
	if u := out.Update; u != nil {
		s = append(s, fmt.Sprintf("store%d +%v -%v", u.ID, u.Started, u.Stopped))
	}
	for _, a := range out.Actions {
		name := fmt.Sprint(a.Entity, a.Incarnation)
		switch a.Kind {
		case shard.Start:
			s = append(s, "+"+name)
		case shard.Pass:
			s = append(s, fmt.Sprintf("%s:%d", name, a.Token))
		case shard.Stop:
			s = append(s, "-"+name)
		case shard.Kill:
			s = append(s, "!"+name)
		}
	}
	if out.Done != 0 {
		s = append(s, "done: "+out.Done.String())
	}
	return strings.Join(s, ", ")
}

func (d *driver) want(out shard.Effects, want string) {
	d.t.Helper()
	if got := text(out); got != want {
		d.t.Errorf("got  %q\nwant %q", got, want)
	}
}

func (d *driver) step(in shard.Input, want string) {
	d.t.Helper()
	d.want(d.m.Step(d.now, in), want)
}

func (d *driver) tick(after time.Duration, want string) {
	d.t.Helper()
	d.now += after
	if next := d.m.Next(); want != "" && next > d.now {
		d.t.Errorf("Next() = %v, but a tick at %v has effects", next, d.now)
	}
	d.want(d.m.Tick(d.now), want)
	if next := d.m.Next(); next <= d.now {
		d.t.Errorf("after Tick(%v): Next() = %v, want a later time", d.now, next)
	}
}

func to(id string, token uint64) shard.Deliver { return shard.Deliver{Entity: id, Token: token} }

func ended(id string, n uint64) shard.Ended { return shard.Ended{Entity: id, Incarnation: n} }

func started(id string, n uint64) shard.Started { return shard.Started{Entity: id, Incarnation: n} }

func passivate(id string, n uint64) shard.Passivate {
	return shard.Passivate{Entity: id, Incarnation: n}
}

func loaded(ids ...string) shard.Loaded { return shard.Loaded{Entities: ids} }

func off() shard.Config {
	return shard.Config{Passivation: passivation.Settings{Disabled: true}}
}
