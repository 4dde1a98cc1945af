// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain_test

import (
	"testing"

	"github.com/refold-io/refold/internal/splitbrain"
)

// Each row is what the node a decides about nodes that some see and others don't.
func TestIndirectlyConnected(t *testing.T) {
	t.Parallel()
	majority := splitbrain.Settings{}
	quorum := splitbrain.Settings{Strategy: splitbrain.StaticQuorum, QuorumSize: 3}
	oldest := splitbrain.Settings{Strategy: splitbrain.KeepOldest}
	const connected = splitbrain.KeepConnected
	for name, c := range map[string]struct {
		settings splitbrain.Settings
		view     string
		want     splitbrain.Decision
		down     string
	}{
		"two that don't see each other":         {majority, "a b! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"one finds the other":                   {majority, "a b! c d e c>b seen=a,b,c,d,e", connected, "b c"},
		"which has not seen the view":           {majority, "a b! c d e c>b seen=a,c,d,e", this, "b"},
		"a ring of three":                       {majority, "a b! c! d! e f b>c c>d d>b seen=a,b,c,d,e,f", connected, "b c d"},
		"more than those who are not":           {majority, "a b! c! d! e! f! b>c c>d d>e e>f f>b seen=a,b,c,d,e,f", connected, "b c d e f"},
		"with this node among them":             {majority, "a! b! c a>b b>a seen=a,b,c", connected, "b a"},
		"a crash besides":                       {majority, "a b! c! d e f! b>c c>b a>f seen=a,b,c,d,e", connected, "b c f"},
		"a partition besides, larger here":      {majority, "a b! c! d e f! g! b>c c>b a>f a>g e>f e>g seen=a,b,c,d,e", connected, "b c f g"},
		"they count as long as it is decided":   {majority, "a b! c! d e! f! g! b>c c>b a>e a>f a>g seen=a,b,c,d", connected, "b c e f g"},
		"a partition besides, larger there":     {majority, "a b! c! d f! g! h! i! j! k! b>c c>b a>f a>g a>h a>i a>j a>k seen=a,b,c,d", connected, "b c d a"},
		"an indirect one has seen the crash":    {majority, "a b! c! d e f! b>c c>b b>f seen=a,b,c,d,e", connected, "b c f"},
		"down ones are not downed again":        {majority, "a b:down! c! d e b>c c>b seen=a,b,c,d,e", connected, "c"},
		"joining ones are":                      {majority, "a b:joining! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"records of strangers say nothing":      {majority, "a b c! z>c c>z a>c seen=a,b", this, "c"},
		"records about strangers say nothing":   {majority, "a b c! a>z c>z a>c seen=a,b,z", this, "c"},
		"the quorum counts first":               {splitbrain.Settings{Strategy: splitbrain.StaticQuorum, QuorumSize: 2}, "a b! c! d e b>c c>b seen=a,b,c,d,e", nobody, "b c d e a"},
		"a quorum with them":                    {quorum, "a b! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"a quorum and a crash":                  {quorum, "a b! c! d e! b>c c>b a>e seen=a,b,c,d", connected, "b c e"},
		"no quorum at the second look":          {quorum, "a! b! c! d! e! a>b b>a a>c a>d a>e seen=a,b", connected, "b a"},
		"the oldest is one of them":             {oldest, "a@2 b@1! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"the oldest is here at the second look": {oldest, "a@1 b! c! d e! b>c c>b a>e seen=a,b,c,d", connected, "b c e"},
		"the oldest is one of them at it":       {oldest, "a@2 b@1! c! d e! b>c c>b a>e seen=a,b,c,d", connected, "b c e"},
		"the oldest is there at it":             {oldest, "a@2 b! c! d e@1! f! b>c c>b a>e a>f seen=a,b,c,d", connected, "b c d a"},
		"down all asks for nothing":             {splitbrain.Settings{Strategy: splitbrain.DownAll}, "a b! c! b>c c>b seen=a,b,c", nobody, "b c a"},

		// Who can't be reached and has not seen the view is on the other side. What it finds counts only if it may have
		// heard of this side's view, so if it finds all here unreachable.
		"cut one way":                          {majority, "a! b! c d! e! a>d a>e b>d c>e d>a e>b seen=a,b,c", this, "d e"},
		"cut one way, the other side is lower": {majority, "a! b! c d! e! f! 0! 0>a a>0 a>d a>e a>f b>d b>e b>f c>d c>e c>f d>a e>b f>a seen=a,b,c", other, "b c a"},
		"cut one way, and it finds all":        {majority, "a! b! c! d! a>d b>d c>d d>a d>b d>c seen=a,b,c", connected, "b c d a"},
		"all, but one who may have joined here": {
			majority, "a! b! c! d! e:joining a>d b>d c>d d>a d>b d>c seen=a,b,c,e", connected, "b c d a",
		},
		"cut one way, a pair besides":          {majority, "a! b! c d! e a>b b>a c>d d>a d>b seen=a,b,c,e", connected, "b d a"},
		"a crash, seen there":                  {majority, "a b c d! e! a>d d>e seen=a,b,c", this, "d e"},
		"a pair there is none of our business": {majority, "a b c d! e! a>d b>e d>e e>d seen=a,b,c", this, "d e"},
		"oldest: cut one way, not all came through": {
			oldest, "a@3 b! c! d! e! f@1! a>d a>e b>e b>f c>d c>f d>b d>c e>b e>c f>b f>c seen=a,b,c", other, "b c a",
		},
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

// TestOneWayCut is a simulated cluster that was cut in two so that one side still heard the other (make sim
// SEED=5550000312). What came through made all of the deaf side's listeners but n10 look indirectly connected, and it
// counted them, the oldest of all among them, as its own.
func TestOneWayCut(t *testing.T) {
	t.Parallel()
	const (
		members = "n00@5! n01@6! n02@2! n03@7! n04@8! n05@9! n06@1! n07@3! n08@10! n09@11! n10@12 n11@4! "
		rows    = "n01>n00 n01>n03 n01>n05 n01>n06 n01>n08 n02>n00 n02>n03 n02>n05 n02>n07 n02>n08 n03>n02 n03>n09 n03>n11 n04>n00 n04>n03 " +
			"n04>n06 n04>n07 n05>n01 n05>n02 n06>n01 n06>n02 n06>n09 n06>n11 n07>n01 n07>n04 n07>n09 n07>n11 n08>n01 n08>n02 n08>n09 n09>n05 n09>n06 " +
			"n09>n07 n09>n08 n10>n00 n10>n03 n10>n05 n10>n07 n10>n08 n11>n03 n11>n05 n11>n06 n11>n07 n11>n08 "
	)
	v := parse(t, members+rows+"seen=n01,n02,n04,n09,n10,n11")
	for s, want := range map[splitbrain.Settings]string{
		{Strategy: splitbrain.KeepOldest}:                       "n01 n02 n04 n09 n11 n10",
		{Strategy: splitbrain.KeepOldest, KeepLoneOldest: true}: "n01 n02 n04 n09 n11 n10",
		{Strategy: splitbrain.KeepMajority}:                     "n01 n02 n04 n09 n11 n10",
		{Strategy: splitbrain.StaticQuorum, QuorumSize: 7}:      "n01 n02 n04 n09 n11 n10",
		{Strategy: splitbrain.StaticQuorum, QuorumSize: 6}:      "n00 n01 n02 n03 n04 n05 n06 n07 n08 n09 n11 n10", // it is outgrown
	} {
		if got, down := outcome(t, "n10", s, v); names(down) != want {
			t.Errorf("%s %d: %v, which downs %q, want %q", s.Strategy, s.QuorumSize, got, names(down), want)
		}
	}
}
