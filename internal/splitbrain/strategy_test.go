// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain_test

import (
	"testing"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/internal/splitbrain"
)

const (
	this   = splitbrain.KeepThisSide
	other  = splitbrain.KeepOtherSide
	nobody = splitbrain.KeepNobody
)

// Each row is the decision of node a: first the other downed nodes, then itself.
func TestStrategies(t *testing.T) {
	t.Parallel()
	majority := splitbrain.Settings{}
	majorityOf := splitbrain.Settings{Role: "r"}
	oldest := splitbrain.Settings{Strategy: downing.KeepOldest}
	lone := splitbrain.Settings{Strategy: downing.KeepOldest, KeepLoneOldest: true}
	quorum := func(n int) splitbrain.Settings {
		return splitbrain.Settings{Strategy: downing.StaticQuorum, QuorumSize: n}
	}
	for name, c := range map[string]struct {
		settings splitbrain.Settings
		view     string
		want     splitbrain.Decision
		down     string
	}{
		"majority: larger":                                         {majority, "a b c!", this, "c"},
		"majority: smaller":                                        {majority, "a b! c!", other, "a"},
		"majority: smaller downs all of its side":                  {majority, "a b c! d! e! f:joining g:weakly-up", other, "b f g a"},
		"majority: equal, lowest here":                             {majority, "a b c! d!", this, "c d"},
		"majority: equal, lowest there":                            {majority, "a b 0! c!", other, "b a"},
		"majority: lowest is by node, not by age":                  {majority, "a@9 b@8 c@1! d@2!", this, "c d"},
		"majority: joining is not counted":                         {majority, "a b:joining c:weakly-up d! e!", other, "b c a"},
		"majority: nor is down, nor exiting":                       {majority, "a b:down! c:exiting! d:down! e:exiting f! g!", other, "a"},
		"majority: joining there goes too":                         {majority, "a b c e d:joining!", this, "d"},
		"majority: shutting down is counted":                       {majority, "a b:preparing-for-shutdown c:ready-for-shutdown d! e!", this, "d e"},
		"majority: leaving is counted":                             {majority, "a b:leaving c! d! e!", other, "b a"},
		"majority: no counted members":                             {majority, "a:weakly-up b:joining! c:weakly-up!", nobody, "b c a"},
		"majority: may be a minority without leaving members":      {majority, "a:leaving b c! d:joining!", nobody, "b c d a"},
		"majority: still one without who leaves":                   {majority, "a b c d:leaving e! f!", this, "e f"},
		"majority: those joining there may be up already":          {majority, "a b c d! e:joining! f:weakly-up!", this, "d e f"},
		"majority: too many of them":                               {majority, "b a c d! e:joining! f:weakly-up! g:joining!", nobody, "b c d e f g a"},
		"majority: one of them may be the lowest":                  {majority, "b a c d! e:joining! 0:weakly-up!", nobody, "0 b c d e a"},
		"majority: one who joins here is not the lowest":           {majority, "0:joining c a b! d! e!", other, "0 c a"},
		"majority: the lowest that doesn't leave decides":          {majority, "c:leaving a e b! d:leaving!", this, "b d"},
		"majority: the lowest that doesn't leave is there":         {majority, "a:leaving c b! d:joining!", nobody, "b c d a"},
		"majority: only leaving members are here":                  {majority, "a:leaving b:leaving c!", nobody, "b c a"},
		"majority: leaving there is as good as up":                 {majority, "a b:leaving c:leaving d!  e:leaving!", nobody, "b c d e a"},
		"majority: the role is counted":                            {majorityOf, "a+r b! c!", this, "b c"},
		"majority: the role is there":                              {majorityOf, "a b c+r!", other, "b a"},
		"majority: no member has the role":                         {majorityOf, "a b c!", nobody, "b c a"},
		"majority: the lowest with the role":                       {majorityOf, "a c+r b+r!", other, "c a"},
		"majority: joining there without the role is not in doubt": {majorityOf, "a+r b+r c+r! d:joining! e:joining!", this, "c d e"},

		"quorum: here":                       {quorum(3), "a b c d! e!", this, "d e"},
		"quorum: not here":                   {quorum(3), "a b c! d! e!", other, "b a"},
		"quorum: as many as are allowed":     {quorum(2), "a b c!", this, "c"},
		"quorum: too many":                   {quorum(2), "a b c d!", nobody, "b c d a"},
		"quorum: joining is not too many":    {quorum(2), "a b c:joining d!", this, "d"},
		"quorum: joining makes no quorum":    {quorum(2), "a b:joining c!", other, "b a"},
		"quorum: of a role":                  {splitbrain.Settings{Strategy: downing.StaticQuorum, QuorumSize: 1, Role: "r"}, "a+r b c d e!", this, "e"},
		"quorum: of a role, not here":        {splitbrain.Settings{Strategy: downing.StaticQuorum, QuorumSize: 1, Role: "r"}, "a b c+r!", other, "b a"},
		"quorum: never reached since":        {quorum(3), "a b!", other, "a"},
		"quorum: down members are no quorum": {quorum(2), "a b:down! c!", other, "a"},

		"oldest: here":                               {oldest, "a@1 b@2 c@3! d@4! e@5!", this, "c d e"},
		"oldest: there":                              {oldest, "a@2 b@3 c@4 d@1! e@5!", other, "b c a"},
		"oldest: alone here":                         {oldest, "a@1 b@2! c@3!", other, "a"},
		"oldest: alone there":                        {oldest, "a@2 b@3 c@1!", this, "c"},
		"oldest: one of two, here":                   {oldest, "a@1 b@2!", this, "b"},
		"oldest: one of two, there":                  {oldest, "a@2 b@1!", other, "a"},
		"oldest: alone here and kept":                {lone, "a@1 b@2! c@3!", this, "b c"},
		"oldest: alone there and kept":               {lone, "a@2 b@3 c@1!", other, "b a"},
		"oldest: ties by node":                       {oldest, "a@1 b@1 c@1! d@1!", this, "c d"},
		"oldest: joining is none":                    {oldest, "a@3 b@2 0:joining@1!", this, "0"},
		"oldest: exiting is none":                    {oldest, "a@3 b@2 c:exiting@1!", 0, ""},
		"oldest: joining is no company":              {oldest, "a@1 b:weakly-up c@2! d@3!", other, "b a"},
		"oldest: leaving here, the next is here":     {oldest, "a:leaving@1 b@2 c@4 d@3!", this, "d"},
		"oldest: leaving here, the next is there":    {oldest, "a:leaving@1 b@3 c@4 d@2! e@5!", nobody, "b c d e a"},
		"oldest: leaving without a successor":        {oldest, "a:leaving@1 b:joining c:leaving@2!", nobody, "b c a"},
		"oldest: lone there, others may have joined": {oldest, "a@2 b@3 c@1! d:joining! e:joining!", nobody, "b c d e a"},
		"oldest: kept, and who joins doesn't matter": {lone, "a@1 b! c:joining! d:joining!", this, "b c d"},
		"oldest: alone without leaving members":      {oldest, "a@1 b:leaving@2 c@3! d@4!", nobody, "b c d a"},
		"oldest: who joins here keeps company":       {oldest, "a@1 b:leaving@2 e:joining c@3! d@4!", this, "c d"},
		"oldest: of a role":                          {splitbrain.Settings{Strategy: downing.KeepOldest, Role: "r", KeepLoneOldest: true}, "a@2+r b@3+r c@1!", this, "c"},
		"oldest: no member has the role":             {splitbrain.Settings{Strategy: downing.KeepOldest, Role: "r"}, "a b c!", nobody, "b c a"},

		"down all": {splitbrain.Settings{Strategy: downing.DownAll}, "a b c:down d:exiting e:joining f! g:down!", nobody, "b e f a"},
		"off":      {splitbrain.Settings{Strategy: downing.Off}, "a b!", 0, ""},
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

// Each row is the decision of node a about nodes that only some members can reach.
func TestIndirectlyConnected(t *testing.T) {
	t.Parallel()
	majority := splitbrain.Settings{}
	quorum := splitbrain.Settings{Strategy: downing.StaticQuorum, QuorumSize: 3}
	oldest := splitbrain.Settings{Strategy: downing.KeepOldest}
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
		"the quorum counts first":               {splitbrain.Settings{Strategy: downing.StaticQuorum, QuorumSize: 2}, "a b! c! d e b>c c>b seen=a,b,c,d,e", nobody, "b c d e a"},
		"a quorum with them":                    {quorum, "a b! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"a quorum and a crash":                  {quorum, "a b! c! d e! b>c c>b a>e seen=a,b,c,d", connected, "b c e"},
		"no quorum at the second look":          {quorum, "a! b! c! d! e! a>b b>a a>c a>d a>e seen=a,b", connected, "b a"},
		"the oldest is one of them":             {oldest, "a@2 b@1! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"the oldest is here at the second look": {oldest, "a@1 b! c! d e! b>c c>b a>e seen=a,b,c,d", connected, "b c e"},
		"the oldest is one of them at it":       {oldest, "a@2 b@1! c! d e! b>c c>b a>e seen=a,b,c,d", connected, "b c e"},
		"the oldest is there at it":             {oldest, "a@2 b! c! d e@1! f! b>c c>b a>e a>f seen=a,b,c,d", connected, "b c d a"},
		"down all asks for nothing":             {splitbrain.Settings{Strategy: downing.DownAll}, "a b! c! b>c c>b seen=a,b,c", nobody, "b c a"},

		// An unreachable node that has not seen the view is on the other side. Its observations
		// count only if it may have received the view of this side: if it finds all of this side
		// unreachable.
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

// TestOneWayCut is a simulated cluster that was cut so that one side still received messages of the
// other (make sim SEED=5550000312). The received observations made all nodes that the deaf side
// could still reach, except n10, look indirectly connected, and the deaf side counted them,
// including the oldest, as its own.
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
		{Strategy: downing.KeepOldest}:                       "n01 n02 n04 n09 n11 n10",
		{Strategy: downing.KeepOldest, KeepLoneOldest: true}: "n01 n02 n04 n09 n11 n10",
		{Strategy: downing.KeepMajority}:                     "n01 n02 n04 n09 n11 n10",
		{Strategy: downing.StaticQuorum, QuorumSize: 7}:      "n01 n02 n04 n09 n11 n10",
		{Strategy: downing.StaticQuorum, QuorumSize: 6}:      "n00 n01 n02 n03 n04 n05 n06 n07 n08 n09 n11 n10", // it is outgrown
	} {
		if got, down := outcome(t, "n10", s, v); names(down) != want {
			t.Errorf("%s %d: %v, which downs %q, want %q", s.Strategy, s.QuorumSize, got, names(down), want)
		}
	}
}
