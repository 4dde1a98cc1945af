// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package downing_test

import (
	"testing"

	"github.com/refold-io/refold/cluster/downing"
)

// Each row is what the node a decides about nodes that some see and others don't.
func TestIndirectlyConnected(t *testing.T) {
	t.Parallel()
	majority := downing.Settings{}
	quorum := downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 3}
	oldest := downing.Settings{Strategy: downing.KeepOldest}
	const connected = downing.KeepConnected
	for name, c := range map[string]struct {
		settings downing.Settings
		view     string
		want     downing.Decision
		down     string
	}{
		"two that don't see each other":         {majority, "a b! c! d e b>c c>b seen=a,d,e", connected, "b c"},
		"one has seen the view":                 {majority, "a b! c d e c>b seen=a,b,c,d,e", connected, "b c"},
		"and has not":                           {majority, "a b! c d e c>b seen=a,c,d,e", this, "b"},
		"a ring of three":                       {majority, "a b! c! d! e f b>c c>d d>b seen=a,e,f", connected, "b c d"},
		"with this node among them":             {majority, "a! b! c a>b b>a seen=c", connected, "b a"},
		"a crash besides":                       {majority, "a b! c! d e f! b>c c>b a>f seen=a,d,e", connected, "b c f"},
		"a partition besides, larger here":      {majority, "a b! c! d e f! g! b>c c>b a>f a>g e>f e>g seen=a,d,e", connected, "b c f g"},
		"a partition besides, larger there":     {majority, "a b! c! d f! g! h! i! j! k! b>c c>b a>f a>g a>h a>i a>j a>k seen=a,d", connected, "b c d a"},
		"an indirect one has seen the crash":    {majority, "a b! c! d e f! b>c c>b b>f seen=a,d,e", connected, "b c f"},
		"cut one way, the other side is lower":  {majority, "a! b! c d! e! f! a>d a>e a>f b>d b>e b>f c>d c>e c>f d>a e>b f>a seen=a,b,c", connected, "b c d e f a"},
		"cut one way, most of it indirect":      {majority, "a! b c d e f! a>f b>f c>f d>f e>f f>a seen=a,b,c,d,e", connected, "f a"},
		"still indirect at the second look":     {majority, "a b! c! d e a>b b>c seen=a,d,e", nobody, "b c d e a"},
		"down ones are not downed again":        {majority, "a b:down! c! d e b>c c>b seen=a,d,e", connected, "c"},
		"joining ones are":                      {majority, "a b:joining! c! d e b>c c>b seen=a,d,e", connected, "b c"},
		"records of strangers say nothing":      {majority, "a b c! z>c c>z a>c seen=a,b", this, "c"},
		"records about strangers say nothing":   {majority, "a b c! a>z c>z a>c seen=a,b,z", this, "c"},
		"the quorum counts first":               {downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 2}, "a b! c! d e b>c c>b seen=a,d,e", nobody, "b c d e a"},
		"a quorum with them":                    {quorum, "a b! c! d e b>c c>b seen=a,d,e", connected, "b c"},
		"a quorum and a crash":                  {quorum, "a b! c! d e! b>c c>b a>e seen=a,d", connected, "b c e"},
		"no quorum at the second look":          {quorum, "a b! c! d! e! b>c c>b a>d a>e seen=a", connected, "b c d e"},
		"no quorum at all at the second look":   {downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 4}, "a b! c! d! e! b>c c>b a>d a>e seen=a", connected, "b c a"},
		"the oldest is one of them":             {oldest, "a@2 b@1! c! d e b>c c>b seen=a,d,e", connected, "b c"},
		"the oldest is here at the second look": {oldest, "a@1 b! c! d e! b>c c>b a>e seen=a,d", connected, "b c e"},
		"down all asks for nothing":             {downing.Settings{Strategy: downing.DownAll}, "a b! c! b>c c>b seen=a", nobody, "b c a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, down := outcome(t, "a", c.settings, parse(t, c.view))
			if got != c.want || names(down) != c.down {
				t.Errorf("%s: %v, which downs %q; want %v, %q", c.view, got, names(down), c.want, c.down)
			}
		})
	}
}
