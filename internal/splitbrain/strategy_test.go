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
		"majority: larger":                                                 {majority, "a b c!", this, "c"},
		"majority: smaller":                                                {majority, "a b! c!", other, "a"},
		"majority: smaller downs all of its side":                          {majority, "a b c! d! e! f:joining g:weakly-up", other, "b f g a"},
		"majority: equal, lowest here":                                     {majority, "a b c! d!", this, "c d"},
		"majority: equal, lowest there":                                    {majority, "a b 0! c!", other, "b a"},
		"majority: lowest is by node, not by age":                          {majority, "a@9 b@8 c@1! d@2!", this, "c d"},
		"majority: joining is not counted":                                 {majority, "a b:joining c:weakly-up d! e!", other, "b c a"},
		"majority: down and exiting are not counted":                       {majority, "a b:down! c:exiting! d:down! e:exiting f! g!", other, "a"},
		"majority: joining there is downed":                                {majority, "a b c e d:joining!", this, "d"},
		"majority: shutting down is counted":                               {majority, "a b:preparing-for-shutdown c:ready-for-shutdown d! e!", this, "d e"},
		"majority: leaving is counted":                                     {majority, "a b:leaving c! d! e!", other, "b a"},
		"majority: no counted members":                                     {majority, "a:weakly-up b:joining! c:weakly-up!", nobody, "b c a"},
		"majority: this side may be a minority without its leaving member": {majority, "a:leaving b c! d:joining!", nobody, "b c d a"},
		"majority: this side is a majority without its leaving member":     {majority, "a b c d:leaving e! f!", this, "e f"},
		"majority: members joining there may be up already":                {majority, "a b c d! e:joining! f:weakly-up!", this, "d e f"},
		"majority: too many members joining there":                         {majority, "b a c d! e:joining! f:weakly-up! g:joining!", nobody, "b c d e f g a"},
		"majority: a member joining there may be the lowest":               {majority, "b a c d! e:joining! 0:weakly-up!", nobody, "0 b c d e a"},
		"majority: a member joining here is not the lowest":                {majority, "0:joining c a b! d! e!", other, "0 c a"},
		"majority: the lowest that is not leaving is here":                 {majority, "c:leaving a e b! d:leaving!", this, "b d"},
		"majority: the lowest that is not leaving is there":                {majority, "a:leaving c b! d:joining!", nobody, "b c d a"},
		"majority: only leaving members are here":                          {majority, "a:leaving b:leaving c!", nobody, "b c a"},
		"majority: leaving there counts as up":                             {majority, "a b:leaving c:leaving d!  e:leaving!", nobody, "b c d e a"},
		"majority: the role is counted":                                    {majorityOf, "a+r b! c!", this, "b c"},
		"majority: the role is there":                                      {majorityOf, "a b c+r!", other, "b a"},
		"majority: no member has the role":                                 {majorityOf, "a b c!", nobody, "b c a"},
		"majority: the lowest with the role":                               {majorityOf, "a c+r b+r!", other, "c a"},
		"majority: joining there without the role does not matter":         {majorityOf, "a+r b+r c+r! d:joining! e:joining!", this, "c d e"},

		"quorum: here":                                      {quorum(3), "a b c d! e!", this, "d e"},
		"quorum: not here":                                  {quorum(3), "a b c! d! e!", other, "b a"},
		"quorum: as many members as allowed":                {quorum(2), "a b c!", this, "c"},
		"quorum: more members than allowed":                 {quorum(2), "a b c d!", nobody, "b c d a"},
		"quorum: joining does not count towards the limit":  {quorum(2), "a b c:joining d!", this, "d"},
		"quorum: joining does not count towards the quorum": {quorum(2), "a b:joining c!", other, "b a"},
		"quorum: of a role":                                 {splitbrain.Settings{Strategy: downing.StaticQuorum, QuorumSize: 1, Role: "r"}, "a+r b c d e!", this, "e"},
		"quorum: of a role, not here":                       {splitbrain.Settings{Strategy: downing.StaticQuorum, QuorumSize: 1, Role: "r"}, "a b c+r!", other, "b a"},
		"quorum: too few members in total":                  {quorum(3), "a b!", other, "a"},
		"quorum: down members do not count":                 {quorum(2), "a b:down! c!", other, "a"},

		"oldest: here":                                   {oldest, "a@1 b@2 c@3! d@4! e@5!", this, "c d e"},
		"oldest: there":                                  {oldest, "a@2 b@3 c@4 d@1! e@5!", other, "b c a"},
		"oldest: alone here":                             {oldest, "a@1 b@2! c@3!", other, "a"},
		"oldest: alone there":                            {oldest, "a@2 b@3 c@1!", this, "c"},
		"oldest: one of two, here":                       {oldest, "a@1 b@2!", this, "b"},
		"oldest: one of two, there":                      {oldest, "a@2 b@1!", other, "a"},
		"oldest: alone here and kept":                    {lone, "a@1 b@2! c@3!", this, "b c"},
		"oldest: alone there and kept":                   {lone, "a@2 b@3 c@1!", other, "b a"},
		"oldest: ties by node":                           {oldest, "a@1 b@1 c@1! d@1!", this, "c d"},
		"oldest: joining is not the oldest":              {oldest, "a@3 b@2 0:joining@1!", this, "0"},
		"oldest: exiting is not the oldest":              {oldest, "a@3 b@2 c:exiting@1!", 0, ""},
		"oldest: alone with a joining member":            {oldest, "a@1 b:weakly-up c@2! d@3!", other, "b a"},
		"oldest: leaving here, the next is here":         {oldest, "a:leaving@1 b@2 c@4 d@3!", this, "d"},
		"oldest: leaving here, the next is there":        {oldest, "a:leaving@1 b@3 c@4 d@2! e@5!", nobody, "b c d e a"},
		"oldest: leaving without a successor":            {oldest, "a:leaving@1 b:joining c:leaving@2!", nobody, "b c a"},
		"oldest: alone there, unless others have joined": {oldest, "a@2 b@3 c@1! d:joining! e:joining!", nobody, "b c d e a"},
		"oldest: kept, joining members do not matter":    {lone, "a@1 b! c:joining! d:joining!", this, "b c d"},
		"oldest: alone without its leaving member":       {oldest, "a@1 b:leaving@2 c@3! d@4!", nobody, "b c d a"},
		"oldest: not alone with a member joining here":   {oldest, "a@1 b:leaving@2 e:joining c@3! d@4!", this, "c d"},
		"oldest: of a role":                              {splitbrain.Settings{Strategy: downing.KeepOldest, Role: "r", KeepLoneOldest: true}, "a@2+r b@3+r c@1!", this, "c"},
		"oldest: no member has the role":                 {splitbrain.Settings{Strategy: downing.KeepOldest, Role: "r"}, "a b c!", nobody, "b c a"},

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
		"two members find each other unreachable":              {majority, "a b! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"one member finds another unreachable":                 {majority, "a b! c d e c>b seen=a,b,c,d,e", connected, "b c"},
		"the unreachable one has not seen the view":            {majority, "a b! c d e c>b seen=a,c,d,e", this, "b"},
		"a ring of three":                                      {majority, "a b! c! d! e f b>c c>d d>b seen=a,b,c,d,e,f", connected, "b c d"},
		"more members indirectly connected than not":           {majority, "a b! c! d! e! f! b>c c>d d>e e>f f>b seen=a,b,c,d,e,f", connected, "b c d e f"},
		"this node is indirectly connected":                    {majority, "a! b! c a>b b>a seen=a,b,c", connected, "b a"},
		"and a crash":                                          {majority, "a b! c! d e f! b>c c>b a>f seen=a,b,c,d,e", connected, "b c f"},
		"and a partition, larger here":                         {majority, "a b! c! d e f! g! b>c c>b a>f a>g e>f e>g seen=a,b,c,d,e", connected, "b c f g"},
		"indirectly connected members count for the partition": {majority, "a b! c! d e! f! g! b>c c>b a>e a>f a>g seen=a,b,c,d", connected, "b c e f g"},
		"and a partition, larger there":                        {majority, "a b! c! d f! g! h! i! j! k! b>c c>b a>f a>g a>h a>i a>j a>k seen=a,b,c,d", connected, "b c d a"},
		"an indirectly connected member observes the crash":    {majority, "a b! c! d e f! b>c c>b b>f seen=a,b,c,d,e", connected, "b c f"},
		"down members are not downed again":                    {majority, "a b:down! c! d e b>c c>b seen=a,b,c,d,e", connected, "c"},
		"joining members are downed":                           {majority, "a b:joining! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"observations by unknown nodes are ignored":            {majority, "a b c! z>c c>z a>c seen=a,b", this, "c"},
		"observations about unknown nodes are ignored":         {majority, "a b c! a>z c>z a>c seen=a,b,z", this, "c"},
		"more members than the quorum allows":                  {splitbrain.Settings{Strategy: downing.StaticQuorum, QuorumSize: 2}, "a b! c! d e b>c c>b seen=a,b,c,d,e", nobody, "b c d e a"},
		"a quorum with the indirectly connected members":       {quorum, "a b! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"a quorum and a crash":                                 {quorum, "a b! c! d e! b>c c>b a>e seen=a,b,c,d", connected, "b c e"},
		"no quorum without the indirectly connected members":   {quorum, "a! b! c! d! e! a>b b>a a>c a>d a>e seen=a,b", connected, "b a"},
		"the oldest is indirectly connected":                   {oldest, "a@2 b@1! c! d e b>c c>b seen=a,b,c,d,e", connected, "b c"},
		"the oldest is here, and a crash":                      {oldest, "a@1 b! c! d e! b>c c>b a>e seen=a,b,c,d", connected, "b c e"},
		"the oldest is indirectly connected, and a crash":      {oldest, "a@2 b@1! c! d e! b>c c>b a>e seen=a,b,c,d", connected, "b c e"},
		"the oldest is on the other side of a partition":       {oldest, "a@2 b! c! d e@1! f! b>c c>b a>e a>f seen=a,b,c,d", connected, "b c d a"},
		"down all downs all members":                           {splitbrain.Settings{Strategy: downing.DownAll}, "a b! c! b>c c>b seen=a,b,c", nobody, "b c a"},

		// An unreachable node that has not seen the view is on the other side. Its observations
		// count only if it finds all nodes of this side unreachable, because it then may have
		// received the view of this side.
		"cut one way":                                       {majority, "a! b! c d! e! a>d a>e b>d c>e d>a e>b seen=a,b,c", this, "d e"},
		"cut one way, the other side is lower":              {majority, "a! b! c d! e! f! 0! 0>a a>0 a>d a>e a>f b>d b>e b>f c>d c>e c>f d>a e>b f>a seen=a,b,c", other, "b c a"},
		"cut one way, the other side finds all unreachable": {majority, "a! b! c! d! a>d b>d c>d d>a d>b d>c seen=a,b,c", connected, "b c d a"},
		"cut one way, a joining member is not found unreachable": {
			majority, "a! b! c! d! e:joining a>d b>d c>d d>a d>b d>c seen=a,b,c,e", connected, "b c d a",
		},
		"cut one way, and an indirectly connected pair":  {majority, "a! b! c d! e a>b b>a c>d d>a d>b seen=a,b,c,e", connected, "b d a"},
		"a crash that the other side observes":           {majority, "a b c d! e! a>d d>e seen=a,b,c", this, "d e"},
		"an indirectly connected pair on the other side": {majority, "a b c d! e! a>d b>e d>e e>d seen=a,b,c", this, "d e"},
		"oldest: cut one way, some observations are missing": {
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

// TestOneWayCut repeats a failed simulation (make sim SEED=5550000312). The cluster was cut in one
// direction: one side still received messages of the other. Because of the received observations,
// all nodes that the other side could still reach, except n10, looked indirectly connected. That
// side counted them, including the oldest, as its own.
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
		{Strategy: downing.StaticQuorum, QuorumSize: 6}:      "n00 n01 n02 n03 n04 n05 n06 n07 n08 n09 n11 n10", // more members than the quorum allows
	} {
		if got, down := outcome(t, "n10", s, v); names(down) != want {
			t.Errorf("%s %d: %v, which downs %q, want %q", s.Strategy, s.QuorumSize, got, names(down), want)
		}
	}
}
