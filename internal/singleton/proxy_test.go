// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/singleton"
)

func proxy(t *testing.T, cfg singleton.ProxyConfig) *singleton.Proxy[int] {
	t.Helper()
	p, err := singleton.NewProxy[int](cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProxyBuffering(t *testing.T) {
	t.Parallel()
	p := proxy(t, singleton.ProxyConfig{})
	p.Send(1)
	if out := p.Tick(0); out.Ask.Kind != 0 {
		t.Errorf("Tick before any member is known sent a request: %+v", out)
	}
	out := p.See(0, parse(t, "b@1 a@2"))
	if want := (singleton.Message{Kind: singleton.Identify, Singleton: "singleton", Round: 1}); out.Ask != want || out.To != node("b") {
		t.Errorf("See: %+v, want %+v to b", out, want)
	}
	if out := p.Tick(999 * time.Millisecond); out.Ask.Kind != 0 {
		t.Errorf("Tick before the interval has passed sent a request: %+v", out)
	}
	if out := p.Tick(time.Second); out.Ask.Kind != singleton.Identify || out.Ask.Round != 1 {
		t.Errorf("Tick after the interval: %+v, want Identify with round 1", out)
	}
	p.Send(3)
	p.Send(2)
	p.Withdraw(3)
	p.Withdraw(4)
	answer := singleton.Message{Kind: singleton.Identified, Singleton: "singleton", Round: 1}
	for subject, out := range map[string]singleton.ProxyEffects[int]{
		"from another node":     p.Receive(0, node("a"), answer),
		"for another singleton": p.Receive(0, node("b"), singleton.Message{Kind: singleton.Identified, Singleton: "x", Round: 1}),
		"of an earlier round":   p.Receive(0, node("b"), singleton.Message{Kind: singleton.Identified, Singleton: "singleton"}),
	} {
		if len(out.Forward) > 0 {
			t.Errorf("an answer %s: messages were forwarded: %+v", subject, out)
		}
	}
	if out := p.Receive(0, node("b"), answer); !slices.Equal(out.Forward, []int{1, 2}) || out.To != node("b") {
		t.Errorf("the answer of b: %+v, want messages 1 and 2 forwarded to b", out)
	}
	if oldest, known := p.Oldest(); oldest != node("b") || !known {
		t.Errorf("Oldest = %v, %t, want b, true", oldest, known)
	}
	if out := p.Receive(0, node("b"), answer); len(out.Forward) > 0 {
		t.Errorf("a repeated answer: messages were forwarded again: %+v", out)
	}
	if out := p.Send(3); !slices.Equal(out.Forward, []int{3}) || out.To != node("b") {
		t.Errorf("Send while the instance is known: %+v, want message 3 forwarded to b", out)
	}
	if out := p.Tick(time.Hour); out.Ask.Kind != 0 {
		t.Errorf("Tick while the instance is known sent a request: %+v", out)
	}
	// The instance ends.
	if out := p.Receive(time.Hour, node("b"), singleton.Message{Kind: singleton.InstanceGone, Singleton: "singleton"}); out.Ask.Round != 2 {
		t.Errorf("InstanceGone: %+v, want a request with round 2", out)
	}
	if out := p.Send(4); len(out.Forward) > 0 {
		t.Errorf("Send while no instance is known forwarded messages: %+v", out)
	}
	// The oldest changes.
	if out := p.See(time.Hour, parse(t, "b:exiting@1 a@2")); out.Ask.Round != 3 || out.To != node("a") {
		t.Errorf("See with another oldest member: %+v, want a request with round 3 to a", out)
	}
	answer.Round = 3
	if out := p.Receive(time.Hour, node("a"), answer); !slices.Equal(out.Forward, []int{4}) || out.To != node("a") {
		t.Errorf("the answer of a: %+v, want message 4 forwarded to a", out)
	}
	if out := p.See(time.Hour, parse(t, "a@2 c@3")); out.Ask.Kind != 0 {
		t.Errorf("See with the same oldest member sent a request: %+v", out)
	}
	if out := p.See(time.Hour, parse(t, "a:down@2 c:joining")); out.Ask.Kind != 0 {
		t.Errorf("See without an oldest member sent a request: %+v", out)
	}
	if out := p.Send(5); len(out.Forward) > 0 {
		t.Errorf("Send while no instance is known forwarded messages: %+v", out)
	}
}

// Each search reports once that the oldest member does not reply.
func TestProxyWithoutReplies(t *testing.T) {
	t.Parallel()
	p := proxy(t, singleton.ProxyConfig{})
	for round, members := range []string{"a@1 b@2", "b@2"} {
		p.See(0, parse(t, members))
		silent := 0
		for i := range 200 {
			out := p.Tick(time.Duration(200*round+i) * time.Second)
			if out.Silent {
				silent++
			}
			if out.Silent && (i < 59 || out.To.IsZero()) {
				t.Errorf("Silent was reported after %d requests to %v, want at least 59", i, out.To)
			}
		}
		if silent != 1 {
			t.Errorf("round %d: Silent was reported %d times, want once", round, silent)
		}
	}
}

func TestProxyWithRole(t *testing.T) {
	t.Parallel()
	p := proxy(t, singleton.ProxyConfig{Role: "r", Singleton: "x"})
	if out := p.See(0, parse(t, "a@1 b:leaving@2+r c@3+r d:joining+r")); out.To != node("b") || out.Ask.Singleton != "x" {
		t.Errorf("See: %+v, want a request for x to b", out)
	}
}

func TestProxyDrops(t *testing.T) {
	t.Parallel()
	p := proxy(t, singleton.ProxyConfig{BufferSize: 2})
	for i, want := range [][]int{nil, nil, {0}, {1}} {
		if out := p.Send(i); !slices.Equal(out.Dropped, want) {
			t.Errorf("message %d drops %v, want %v", i, out.Dropped, want)
		}
	}
	off := proxy(t, singleton.ProxyConfig{BufferSize: -1})
	if out := off.Send(7); !slices.Equal(out.Dropped, []int{7}) {
		t.Errorf("Send without a buffer: %+v, want message 7 dropped", out)
	}
	all := proxy(t, singleton.ProxyConfig{})
	for i := range 1001 {
		if out := all.Send(i); (len(out.Dropped) > 0) != (i == 1000) {
			t.Errorf("message %d drops %v, want a drop only for message 1000", i, out.Dropped)
		}
	}
}

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]singleton.ProxyConfig{
		"ProxyConfig.Singleton":        {Singleton: strings.Repeat("x", 256)},
		"ProxyConfig.IdentifyInterval": {IdentifyInterval: -1},
		"ProxyConfig.BufferSize":       {BufferSize: 10_001},
	} {
		if _, err := singleton.NewProxy[int](cfg); !errors.Is(err, singleton.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: the error %v does not name %s", cfg, err, field)
		}
	}
	for field, cfg := range map[string]singleton.Config{
		"Config.Self":               {},
		"Config.Name":               {Self: node("a"), Name: strings.Repeat("x", 256)},
		"Config.RetryInterval":      {Self: node("a"), RetryInterval: -1},
		"Config.MinRetries":         {Self: node("a"), MinRetries: -1},
		"Config.LeaseRetryInterval": {Self: node("a"), LeaseRetryInterval: -1},
	} {
		if _, err := singleton.New(cfg); !errors.Is(err, singleton.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: the error %v does not name %s", cfg, err, field)
		}
	}
}
